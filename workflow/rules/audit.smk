# What the protocol gives away, what uploads reveal, and which conclusions survive.


localrules:
    audit_protocols,
    audit_significance,
    audit_granularity,
    verdicts,


rule audit_protocols:
    """Methods at each step from the published to the clean protocol, and how their ranks move."""
    input:
        runs=lambda wildcards: files_of_runs(
            stepped_runs(map(audit_of, available(config["datasets"])))
        ),
        code=code("fedrec.reporting.ladders"),
    output:
        table=table_files("audit_protocols"),
        figure=figure_files("audit_ranks"),
    log:
        results("logs/tables/audit_protocols.log"),
    params:
        words=lambda wildcards: ladder_words(
            [audit_of(dataset) for dataset in available(config["datasets"])],
            config["audit"]["methods"],
            config["audit"]["switches"],
            rounds_of,
        ),
        titles=[title(METHODS, method) for method in config["audit"]["methods"]],
        table=lambda wildcards, output: output.table[0].removesuffix(".csv"),
        figure=lambda wildcards, output: output.figure[0].removesuffix(".csv"),
    shell:
        "fedrec audit protocols {params.words} --out {params.table} --figure {params.figure} > {log} 2>&1"


rule audit_exposure:
    """How often held-out items and candidates were drawn, whether scores follow, and hits that vanish."""
    input:
        runs=lambda wildcards: files_of_runs(
            exposed_runs(available(config["datasets"]))
        ),
        states=lambda wildcards: files_of_runs(
            exposed_runs(available(config["datasets"])), "state.safetensors"
        ),
        code=code("fedrec.reporting.exposures"),
    output:
        table=table_files("audit_exposure"),
        runs=temp(results("tables/audit_exposure_runs.txt")),
    log:
        results("logs/tables/audit_exposure.log"),
    params:
        runs=lambda wildcards, input: "".join(f"{path}\n" for path in input.runs),
        methods=config["method_file"],
        titles=[title(METHODS, method) for method in config["methods"]],
        table=lambda wildcards, output: output.table[0].removesuffix(".csv"),
    shell:
        "printf %s {params.runs:q} > {output.runs:q};"
        " fedrec audit exposure --runs-from {output.runs:q} --methods {params.methods}"
        " --out {params.table} > {log} 2>&1"


rule audit_uploads:
    """What a server can infer of its clients from what they send, with and without noise."""
    input:
        runs=lambda wildcards: [
            file
            for dataset in available(config["datasets"])
            for file in files_of_runs(sorted(attacked_runs(dataset)))
        ],
        states=lambda wildcards: [
            file
            for dataset in available(config["datasets"])
            for file in files_of_runs(
                sorted(attacked_runs(dataset)), "state.safetensors"
            )
        ],
        code=code("fedrec.reporting.upload_tables"),
    output:
        table=table_files("audit_uploads"),
    log:
        results("logs/tables/audit_uploads.log"),
    params:
        methods=config["method_file"],
        titles=[title(METHODS, method) for method in config["audit"]["uploads"]],
        table=lambda wildcards, output: output.table[0].removesuffix(".csv"),
    shell:
        "fedrec audit uploads {input.runs:q} --methods {params.methods} --out {params.table} > {log} 2>&1"


rule audit_significance:
    """Which differences between the compared methods are more than chance."""
    input:
        runs=lambda wildcards: [
            file
            for dataset in available(config["datasets"])
            for file in files_of_runs(compared_runs(dataset))
        ],
        code=code("fedrec.reporting.significances"),
    output:
        table=table_files("audit_significance"),
        runs=temp(results("tables/audit_significance_runs.txt")),
    log:
        results("logs/tables/audit_significance.log"),
    params:
        runs=lambda wildcards, input: "".join(f"{path}\n" for path in input.runs),
        methods=config["method_file"],
        titles=[title(METHODS, method) for method in config["methods"]],
        table=lambda wildcards, output: output.table[0].removesuffix(".csv"),
    shell:
        "printf %s {params.runs:q} > {output.runs:q};"
        " fedrec audit significance --runs-from {output.runs:q} --methods {params.methods}"
        " --out {params.table} > {log} 2>&1"


rule audit_granularity:
    """Whether printed hit ratios are single runs or the averages they are said to be."""
    input:
        statistics=lambda wildcards: [
            results(f"data/{dataset}/statistics.json")
            for dataset in available(config["datasets"])
        ],
        code=code("fedrec.reporting.audit_granularity"),
        printed="fedrec/config/printed.csv",
    output:
        table=table_files("audit_granularity"),
    log:
        results("logs/tables/audit_granularity.log"),
    params:
        catalogue=config["catalogue"],
        table=lambda wildcards, output: output.table[0].removesuffix(".csv"),
    shell:
        "fedrec audit granularity --statistics {input.statistics} --catalogue {params.catalogue}"
        " --out {params.table} > {log} 2>&1"


rule verdicts:
    """Which claims of the papers hold, as far as the runs of the configuration can tell."""
    input:
        runs=lambda wildcards: files_of_runs(judged_runs(available(config["datasets"]))),
        code=code("fedrec.reporting.verdicts"),
        printed="fedrec/config/printed.csv",
        claims=config["claim_file"],
    output:
        table=table_files("verdicts"),
        runs=temp(results("tables/verdicts_runs.txt")),
    log:
        results("logs/tables/verdicts.log"),
    params:
        runs=lambda wildcards, input: "".join(f"{path}\n" for path in input.runs),
        words=lambda wildcards: verdict_words(config["rounds"]),
        table=lambda wildcards, output: output.table[0].removesuffix(".csv"),
    shell:
        "printf %s {params.runs:q} > {output.runs:q};"
        " fedrec audit verdicts --runs-from {output.runs:q} {params.words}"
        " --out {params.table} > {log} 2>&1"


# The audit of one paper, `snakemake audit_pfedclr`: its claims and the steps of its main comparison, with its
# own settings and rounds, on every dataset of its that can be had.
for PAPER in PAPERS:

    rule:
        name:
            f"verdicts_{PAPER}"
        input:
            runs=lambda wildcards, paper=PAPER: files_of_runs(claimed_runs(paper)),
            code=code("fedrec.reporting.verdicts"),
            printed="fedrec/config/printed.csv",
            claims=config["claim_file"],
        output:
            table=table_files(f"verdicts_{PAPER}"),
        log:
            results(f"logs/tables/verdicts_{PAPER}.log"),
        localrule: True
        params:
            paper=PAPER,
            words=lambda wildcards: verdict_words(None),
            table=lambda wildcards, output: output.table[0].removesuffix(".csv"),
        shell:
            "fedrec audit verdicts --of {params.paper} {params.words} --out {params.table} > {log} 2>&1"

    rule:
        name:
            f"audit_protocols_{PAPER}"
        input:
            runs=lambda wildcards, paper=PAPER: files_of_runs(
                stepped_runs(audit_of_paper(paper))
            ),
            code=code("fedrec.reporting.ladders"),
        output:
            table=table_files(f"audit_protocols_{PAPER}"),
            figure=figure_files(f"audit_ranks_{PAPER}"),
        log:
            results(f"logs/tables/audit_protocols_{PAPER}.log"),
        localrule: True
        params:
            words=lambda wildcards, paper=PAPER: ladder_words(
                audit_of_paper(paper),
                compared_in(paper),
                SWITCHES,
                lambda dataset: None,
            ),
            table=lambda wildcards, output: output.table[0].removesuffix(".csv"),
            figure=lambda wildcards, output: output.figure[0].removesuffix(".csv"),
        shell:
            "fedrec audit protocols {params.words} --out {params.table} --figure {params.figure}"
            " > {log} 2>&1"

    rule:
        name:
            f"audit_{PAPER}"
        input:
            table_files(f"verdicts_{PAPER}"),
            table_files(f"audit_protocols_{PAPER}"),
            figure_files(f"audit_ranks_{PAPER}"),
        localrule: True
