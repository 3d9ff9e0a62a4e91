# One training run per paper, dataset, protocol, method and seed.

RUN = "runs/{paper}/{dataset}/{protocol}/{method}/seed{seed}"

# With `update`, Snakemake does not delete the files of a run before its job. `fedrec train --replace` then keeps a run
# that matches the plan: an imported one, or one of equal code. A cache requires that the files do not exist.
IN_PLACE = str if RULES.cache else update


rule train:
    """Train one method on one split, with one paper's settings and one seed."""
    input:
        RULES.splits,
    output:
        curve=IN_PLACE(result(f"{RUN}/curve.parquet")),
        ranks=IN_PLACE(result(f"{RUN}/ranks.parquet")),
        timing=IN_PLACE(result(f"{RUN}/timing.parquet")),
        state=IN_PLACE(result(f"{RUN}/state.safetensors")),
        run=IN_PLACE(result(f"{RUN}/run.json")),
    log:
        result(f"logs/{RUN}/train.log"),
    wildcard_constraints:
        paper=r"[a-z][a-z0-9]*",
        method=r"[a-z0-9][\w.+@-]*",
        seed=r"[0-9]+",
    cache: RULES.cache
    priority: lambda wildcards: RULES.job(wildcards).priority
    group:
        RULES.group
    resources:
        gpu=RULES.resources.gpus,
        mem_mb=RULES.memory,
        runtime=RULES.minutes,
    params:
        fingerprint=lambda wildcards: RULES.job(wildcards).fingerprint,
        settings=RULES.settings,
        words=lambda wildcards: RULES.job(wildcards).arguments(),
        data=lambda wildcards: result(RULES.job(wildcards).data),
        folder=subpath(output.run, parent=True),
    message:
        "train {wildcards.paper}/{wildcards.dataset}/{wildcards.protocol}/{wildcards.method}/seed{wildcards.seed}"
    shell:
        # Snakemake requires all output files: write an empty file in place of a large model that no target reads.
        "fedrec train {params.words:q} --data {params.data:q} --out {params.folder:q} --replace > {log:q} 2>&1"
        " && {{ [ -e {output.state:q} ] || : > {output.state:q}; }}"
