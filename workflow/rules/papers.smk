# The papers' tables and figures: each is built from the runs it needs, and is a target of its own.


localrules:
    paper_table,
    paper_figure,
    report,
    demo_report,


rule paper_table:
    """One table of a paper, ours beside the printed numbers (csv, markdown, LaTeX)."""
    input:
        unpack(artefact_inputs),
        code=code("fedrec.reporting.artefacts"),
    output:
        csv=results("tables/{artefact}.csv"),
        md=results("tables/{artefact}.md"),
        tex=results("tables/{artefact}.tex"),
    log:
        results("logs/tables/{artefact}.log"),
    wildcard_constraints:
        artefact=names_of("table"),
    params:
        content=lambda wildcards: artefact_content(wildcards.artefact),
        command=lambda wildcards: artefact_command(wildcards.artefact),
    shell:
        "{params.command} > {log} 2>&1"


rule paper_figure:
    """One figure of a paper (pdf, png), the plotted data (csv) and its caption (txt)."""
    input:
        unpack(artefact_inputs),
        code=code("fedrec.reporting.artefacts"),
    output:
        csv=results("figures/{artefact}.csv"),
        pdf=results("figures/{artefact}.pdf"),
        png=results("figures/{artefact}.png"),
        txt=results("figures/{artefact}.txt"),
    log:
        results("logs/figures/{artefact}.log"),
    wildcard_constraints:
        artefact=names_of("figure"),
    params:
        content=lambda wildcards: artefact_content(wildcards.artefact),
        command=lambda wildcards: artefact_command(wildcards.artefact),
    shell:
        "{params.command} > {log} 2>&1"


# A table or figure by its name, `snakemake pfedclr_table1`, and all of a paper's, `snakemake pfedclr`.
for ARTEFACT in ARTEFACTS.values():

    rule:
        name:
            ARTEFACT.target
        input:
            lambda wildcards, artefact=ARTEFACT: files_of([artefact]),
        localrule: True


for PAPER in PAPERS.values():

    rule:
        name:
            PAPER.name
        input:
            lambda wildcards, paper=PAPER: files_of(paper.artefacts.values()),
        localrule: True


PAGE = sorted(str(path) for path in Path("fedrec/reporting/page").glob("*"))


rule report:
    """One page of everything the configuration asks for; opens offline in any browser."""
    input:
        unpack(
            lambda wildcards: report_inputs(
                available(config["datasets"]),
                "selected",
                chosen_artefacts(),
                audit=reported_audit(),
            )
        ),
        page=PAGE,
        code=code("fedrec.reporting.report"),
    output:
        html=results("report/report.html"),
        runs=results("report/runs.txt"),
    log:
        results("logs/report.log"),
    params:
        runs=lambda wildcards, input: "".join(f"{path}\n" for path in input.runs),
        command=lambda wildcards: report_words(
            config["datasets"], "selected", chosen_artefacts(), audit=reported_audit()
        ),
    shell:
        "printf %s {params.runs:q} > {output.runs:q};"
        " {params.command} --runs-from {output.runs:q} --out {output.html:q} 2>&1 | tee {log}"


rule demo_report:
    """The page of the demonstration."""
    input:
        unpack(lambda wildcards: report_inputs(["demo"], "demo", [])),
        page=PAGE,
        code=code("fedrec.reporting.report"),
    output:
        html=results("report/demo.html"),
        runs=results("report/demo_runs.txt"),
    log:
        results("logs/demo_report.log"),
    params:
        runs=lambda wildcards, input: "".join(f"{path}\n" for path in input.runs),
        command=lambda wildcards: report_words(["demo"], "demo", []),
    shell:
        "printf %s {params.runs:q} > {output.runs:q};"
        " {params.command} --runs-from {output.runs:q} --out {output.html:q} 2>&1 | tee {log}"
