# One training run per paper, dataset, protocol, method and seed.

RUN = "runs/{paper}/{dataset}/{protocol}/{method}/seed{seed}"


rule train:
    """Train one method on one split, with one paper's settings and one seed."""
    input:
        lambda wildcards: results(job_of(wildcards).reads),
    output:
        curve=results(f"{RUN}/curve.parquet"),
        ranks=results(f"{RUN}/ranks.parquet"),
        timing=results(f"{RUN}/timing.parquet"),
        state=results(f"{RUN}/state.safetensors"),
        run=results(f"{RUN}/run.json"),
    log:
        results(f"logs/{RUN}/train.log"),
    wildcard_constraints:
        paper=r"[a-z][a-z0-9]*",
        method=r"[a-z0-9][\w.+@-]*",
        seed=r"[0-9]+",
    cache: CACHED
    priority: lambda wildcards: job_of(wildcards).priority
    group:
        bundle_of
    resources:
        gpu=gpus_here,
        gres=gpus_of_job,
        mem_mb=memory_of,
        runtime=minutes_of,
    params:
        fingerprint=lambda wildcards: job_of(wildcards).fingerprint,
        settings=lambda wildcards: canonical_json(job_of(wildcards).settings),
        words=lambda wildcards: job_of(wildcards).arguments(),
        data=lambda wildcards: results(job_of(wildcards).data),
        folder=subpath(output.run, parent=True),
    message:
        "train {wildcards.paper}/{wildcards.dataset}/{wildcards.protocol}/{wildcards.method}/seed{wildcards.seed}"
    shell:
        "fedrec train {params.words:q} --data {params.data:q} --out {params.folder:q} > {log:q} 2>&1"
