"""fedrec: configuration, validation, includes and targets; the rules are in workflow/rules."""

from snakemake.utils import min_version

min_version("9.3")


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"


localrules:
    all,
    demo,
    datasets,
    splits,
    benchmark,


rule all:
    """Everything the configuration asks for: splits and statistics of the configured datasets."""
    input:
        lambda wildcards: splits_of(config["datasets"], config["protocols"]),
        statistics_table("selected"),


rule demo:
    """The synthetic dataset from nothing to its tables; needs no network."""
    input:
        lambda wildcards: splits_of(["demo"], ["published", "clean"]),
        statistics_table("demo"),


rule datasets:
    """Statistics of every dataset in the catalogue, beside the published ones."""
    input:
        statistics_table("dataset"),


rule splits:
    """The frozen splits of every dataset in the catalogue, for every protocol."""
    input:
        lambda wildcards: splits_of(available(CATALOGUE), ["published", "clean"]),


rule benchmark:
    """Speed of preparing MovieLens 1M, as a ratio to merely reading its file."""
    input:
        results("benchmarks/prepare_ml-1m.json"),


# The rules come after the targets: the first rule is what `snakemake` builds when nothing is named.
include: "workflow/rules/data.smk"
include: "workflow/rules/benchmark.smk"
