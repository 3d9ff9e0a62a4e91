"""fedrec: configuration, validation, includes and targets; the rules are in workflow/rules."""

from snakemake.utils import min_version

min_version("9.3")


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"


localrules:
    all,
    audit,
    demo,
    datasets,
    splits,
    benchmark,


rule all:
    """Everything the configuration asks for: splits, statistics, comparisons, audit, tables and figures."""
    input:
        lambda wildcards: splits_of(config["datasets"], config["protocols"]),
        statistics_table("selected"),
        comparison_of(config["datasets"]),
        lambda wildcards: audit_files(),
        lambda wildcards: files_of(chosen_artefacts()),
        results("report/report.html"),


rule audit:
    """What the protocol and uploads give away, and which conclusions survive, for the configured datasets."""
    input:
        lambda wildcards: audit_files(),


rule demo:
    """The synthetic dataset from nothing to its report, every method trained; needs no network."""
    input:
        lambda wildcards: splits_of(["demo"], ["published", "clean"]),
        statistics_table("demo"),
        comparison_of(["demo"]),
        results("report/demo.html"),


rule datasets:
    """Statistics of every whole dataset in the catalogue, beside the published ones."""
    input:
        statistics_table("dataset"),


rule splits:
    """The frozen splits of every whole dataset in the catalogue, for every protocol."""
    input:
        lambda wildcards: splits_of(
            available(CATALOGUE.whole()), ["published", "clean"]
        ),


rule benchmark:
    """Speed, as ratios: preparing MovieLens 1M, and training the clients of MovieLens 100K at once."""
    input:
        results("benchmarks/prepare_ml-1m.json"),
        results("benchmarks/engines_ml-100k.json"),


onstart:
    print(announcement(workflow.dag.needrun_jobs(), workflow.cores), file=sys.stderr)


# The rules come after the targets: the first rule is what `snakemake` builds when nothing is named.
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/papers.smk"
include: "workflow/rules/audit.smk"
include: "workflow/rules/benchmark.smk"
