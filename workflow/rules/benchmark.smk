# Speed, measured as ratios within one run.


localrules:
    benchmark_prepare,
    benchmark_engines,


# Alone on the machine, or the ratio would measure the neighbours: Snakemake lowers this to what there is.
ALL_CORES = 1024


rule benchmark_prepare:
    """Parse, filter and split against merely reading the file."""
    input:
        raw=raw_files_of,
        code="benchmarks/prepare.py",
    output:
        results("benchmarks/prepare_{dataset}.json"),
    log:
        results("logs/benchmark/prepare_{dataset}.log"),
    threads: ALL_CORES
    params:
        recipe=lambda wildcards: CATALOGUE[wildcards.dataset].recipe(),
        catalogue=config["catalogue"],
        protocols=config["protocol_file"],
        raw=str(RAW),
    shell:
        "python -m benchmarks.prepare {wildcards.dataset} --catalogue {params.catalogue}"
        " --protocols {params.protocols} --raw {params.raw} --out {output} 2> {log}"


rule benchmark_engines:
    """A round of FedMF with every client: all at once against one after another."""
    input:
        split=results("data/{dataset}/clean/split.parquet"),
        candidates=results("data/{dataset}/clean/candidates.parquet"),
        code="benchmarks/engines.py",
    output:
        results("benchmarks/engines_{dataset}.json"),
    log:
        results("logs/benchmark/engines_{dataset}.log"),
    threads: ALL_CORES
    params:
        methods=config["method_file"],
        data=lambda wildcards, input: str(Path(input.split).parent.parent),
    shell:
        "python -m benchmarks.engines --data {params.data} --methods {params.methods}"
        " --out {output} 2> {log}"
