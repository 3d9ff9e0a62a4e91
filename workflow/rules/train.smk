# One training run per paper, dataset, protocol, method and seed.


rule train:
    """Train one method on one split, with one paper's settings and one seed."""
    input:
        split=lambda wildcards: run_split(wildcards, "split"),
        candidates=lambda wildcards: run_split(wildcards, "candidates"),
        code=run_code,
    output:
        curve=run_file("curve.parquet"),
        ranks=run_file("ranks.parquet"),
        timing=run_file("timing.parquet"),
        state=run_file("state.safetensors"),
        run=run_file("run.json"),
    log:
        results(f"logs/{RUN}/train.log"),
    benchmark:
        results(f"benchmarks/jobs/{RUN}/train.tsv")
    wildcard_constraints:
        method=FOLDER_NAME,
    resources:
        gpu=config["gpu_per_run"],
    params:
        method=lambda wildcards: spelling_of(wildcards.method),
        settings=lambda wildcards: run_settings(wildcards),
        keeps=lambda wildcards: [f"--record {one}" for one in run_keeps(wildcards)],
        methods=config["method_file"],
        data=lambda wildcards, input: str(Path(input.split).parent.parent),
        folder=lambda wildcards, output: str(Path(output.run).parent),
    shell:
        "fedrec train --data {params.data} --method {params.method:q} --paper {wildcards.paper}"
        " --protocol {wildcards.protocol} --seed {wildcards.seed} --methods {params.methods}"
        " --out {params.folder:q} {params.keeps} > {log:q} 2>&1"


rule comparison_table:
    """Methods side by side under the published and the clean protocol (csv, markdown, LaTeX)."""
    input:
        runs=lambda wildcards: [
            results(f"{run.folder}/run.json")
            for run in compared_runs(wildcards.dataset)
        ],
        code=code("fedrec.reporting.comparison"),
    output:
        csv=results("tables/{dataset}_comparison.csv"),
        md=results("tables/{dataset}_comparison.md"),
        tex=results("tables/{dataset}_comparison.tex"),
    log:
        results("logs/tables/{dataset}_comparison.log"),
    params:
        titles=[title(METHODS, method) for method in config["methods"]],
        methods=config["method_file"],
        stem=lambda wildcards, output: str(Path(output.csv).with_suffix("")),
    shell:
        "fedrec compare {input.runs:q} --methods {params.methods} --out {params.stem} > {log} 2>&1"


rule convergence_figure:
    """The curves of the compared methods over rounds (pdf, png), their data (csv) and caption (txt)."""
    input:
        runs=lambda wildcards: [
            results(f"{run.folder}/run.json")
            for run in compared_runs(wildcards.dataset)
        ],
        code=code("fedrec.reporting.figures"),
    output:
        csv=results("figures/{dataset}_convergence.csv"),
        pdf=results("figures/{dataset}_convergence.pdf"),
        png=results("figures/{dataset}_convergence.png"),
        txt=results("figures/{dataset}_convergence.txt"),
    log:
        results("logs/figures/{dataset}_convergence.log"),
    params:
        titles=[title(METHODS, method) for method in config["methods"]],
        methods=config["method_file"],
        stem=lambda wildcards, output: str(Path(output.csv).with_suffix("")),
    shell:
        "fedrec convergence {input.runs:q} --methods {params.methods} --out {params.stem} > {log} 2>&1"


localrules:
    comparison_table,
    convergence_figure,
