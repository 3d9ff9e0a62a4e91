# Speed, measured as ratios within one run.


localrules:
    benchmark_prepare,
    benchmark_engines,


# More cores than any machine has, so that Snakemake runs nothing else at the same time.
ALL_CORES = 1024


rule benchmark_prepare:
    """Time of parsing, filtering and splitting a file, relative to reading it."""
    input:
        raw=lambda wildcards: map(str, PROJECT.raw_files(wildcards.dataset)),
        code="benchmarks/prepare.py",
    output:
        result("benchmarks/prepare_{dataset}.json"),
    log:
        result("logs/benchmark/prepare_{dataset}.log"),
    threads: ALL_CORES
    params:
        recipe=lambda wildcards: PROJECT.catalogue[wildcards.dataset].recipe(),
        catalogue=PROJECT.configuration["catalogue"],
        protocols=PROJECT.configuration["protocol_file"],
        raw=str(PROJECT.raw),
    message:
        "benchmark_prepare {wildcards.dataset}"
    shell:
        "python -m benchmarks.prepare {wildcards.dataset:q} --catalogue {params.catalogue:q}"
        " --protocols {params.protocols:q} --raw {params.raw:q} --out {output:q} 2> {log:q}"


rule benchmark_engines:
    """Time of a round of FedMF and PFedCLR with all clients: fused and batched engine relative to the loop."""
    input:
        split=result("data/{dataset}/clean/split.parquet"),
        candidates=result("data/{dataset}/clean/candidates.parquet"),
        code="benchmarks/engines.py",
    output:
        result("benchmarks/engines_{dataset}.json"),
    log:
        result("logs/benchmark/engines_{dataset}.log"),
    threads: ALL_CORES
    params:
        methods=PROJECT.configuration["method_file"],
        data=subpath(input.split, ancestor=2),
    message:
        "benchmark_engines {wildcards.dataset}"
    shell:
        "python -m benchmarks.engines --data {params.data:q} --methods {params.methods:q}"
        " --method fedmf pfedclr --out {output:q} 2> {log:q}"
