"""fedrec: configuration, includes and targets; the rules are in workflow/rules, what to build in fedrec/plan."""

from snakemake.utils import min_version

min_version("9.19")


# fedrec's reader of the configuration comes first: its errors name file, line and key.
include: "workflow/rules/common.smk"


configfile: "config/config.yaml"


localrules:
    all,
    quick,
    audit,
    demo,
    datasets,
    splits,
    benchmark,
    reference,


rule all:
    """All configured results: splits, statistics, comparisons, audit, tables and figures."""
    input:
        lambda wildcards: results(
            PROJECT.splits(
                PROJECT.configuration["datasets"], PROJECT.configuration["protocols"]
            )
        ),
        lambda wildcards: results(PROJECT.files("all")),
    message:
        "all: everything is there"


rule quick:
    """A first look: the tables of `all` for the configured datasets and methods, after ten rounds each."""
    input:
        lambda wildcards: results(PROJECT.files("quick")),
    message:
        "quick: everything is there"


rule audit:
    """The audit of the configured datasets: what sampling and uploads reveal, and which claims hold."""
    input:
        lambda wildcards: results(PROJECT.files("audit")),
    message:
        "audit: everything is there"


rule demo:
    """The demonstration: generate a synthetic dataset, train all methods, build the report; no network."""
    input:
        lambda wildcards: results(PROJECT.splits(["demo"], ["published", "clean"])),
        lambda wildcards: results(PROJECT.files("demo")),
    message:
        "demo: everything is there"


rule datasets:
    """Statistics of every whole dataset in the catalogue, beside the published ones."""
    input:
        lambda wildcards: results(PROJECT.files("datasets")),
    message:
        "datasets: everything is there"


rule splits:
    """The frozen splits of every whole dataset in the catalogue, for every protocol."""
    input:
        lambda wildcards: results(
            PROJECT.splits(
                PROJECT.available(PROJECT.catalogue.whole()), ["published", "clean"]
            )
        ),
    message:
        "splits: everything is there"


rule benchmark:
    """Speed, as ratios: preparing MovieLens 1M, and training the clients of MovieLens 100K by each engine."""
    input:
        result("benchmarks/prepare_ml-1m.json"),
        result("benchmarks/engines_ml-100k.json"),
    message:
        "benchmark: everything is there"


rule reference:
    """Every table, figure and the page from the reference runs, without training, data or network."""
    output:
        directory(result("from-reference")),
    log:
        result("logs/reference.log"),
    threads: 2
    params:
        store="results/reference",
    message:
        "reference: build tables, figures and the page from results/reference"
    shell:
        "fedrec reference build --store {params.store:q} --out {output:q} --jobs {threads} > {log:q} 2>&1"


onstart:
    write_text(PROJECT.results / "plan/project.json", PROJECT.configuration_text())
    RULES.start(workflow.dag_settings.targets, workflow.cores)


onsuccess:
    RULES.end()


# These rules come after the targets, because `snakemake` without a target builds the first rule.
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/build.smk"
include: "workflow/rules/tune.smk"
include: "workflow/rules/benchmark.smk"
