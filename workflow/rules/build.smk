# Tables, figures and pages by name. Each stores its plan: its content and its runs.


localrules:
    table,
    figure,
    page,


rule table:
    """One table (csv, markdown, LaTeX; json for pages)."""
    input:
        RULES.inputs,
    output:
        csv=report(
            result("tables/{target}.csv"),
            category=RULES.chapter,
            caption="../report/table.rst",
        ),
        md=result("tables/{target}.md"),
        tex=result("tables/{target}.tex"),
        json=result("tables/{target}.json"),
        plan=result("plan/{target}.json"),
    log:
        result("logs/tables/{target}.log"),
    wildcard_constraints:
        target=PROJECT.pattern("table"),
    priority: RULES.priority
    params:
        plan=RULES.plan,
        project=result("plan/project.json"),
    message:
        "table {wildcards.target}"
    shell:
        "printf %s {params.plan:q} > {output.plan:q};"
        " fedrec build {wildcards.target:q} --plan {output.plan:q} --project {params.project:q}"
        " > {log:q} 2>&1"


rule figure:
    """One figure (pdf, png, svg), its data (csv) and its caption (txt)."""
    input:
        RULES.inputs,
    output:
        csv=result("figures/{target}.csv"),
        pdf=result("figures/{target}.pdf"),
        png=report(
            result("figures/{target}.png"),
            category=RULES.chapter,
            caption="../report/figure.rst",
        ),
        svg=result("figures/{target}.svg"),
        txt=result("figures/{target}.txt"),
        plan=result("plan/{target}.json"),
    log:
        result("logs/figures/{target}.log"),
    wildcard_constraints:
        target=PROJECT.pattern("figure"),
    priority: RULES.priority
    params:
        plan=RULES.plan,
        project=result("plan/project.json"),
    message:
        "figure {wildcards.target}"
    shell:
        "printf %s {params.plan:q} > {output.plan:q};"
        " fedrec build {wildcards.target:q} --plan {output.plan:q} --project {params.project:q}"
        " > {log:q} 2>&1"


rule page:
    """One page of all results for any browser, without network; the page of its runs; its finding (txt)."""
    input:
        RULES.inputs,
    output:
        html=report(
            result("report/{target}.html"),
            category="Pages",
            caption="../report/page.rst",
        ),
        runs=result("report/{target}.runs.html"),
        txt=result("report/{target}.txt"),
        plan=result("plan/{target}.json"),
    log:
        result("logs/report/{target}.log"),
    wildcard_constraints:
        target=PROJECT.pattern("page"),
    params:
        plan=RULES.plan,
        project=result("plan/project.json"),
    message:
        "page {wildcards.target}"
    shell:
        "printf %s {params.plan:q} > {output.plan:q};"
        " fedrec build {wildcards.target:q} --plan {output.plan:q} --project {params.project:q}"
        " 2>&1 | tee {log:q}"


# `snakemake pfedclr_table1`, all of a paper (`snakemake pfedclr`), or its audit (`snakemake audit_pfedclr`).
for NAME in PROJECT.names_for_rules():

    rule:
        """A table, figure or page by its name, or all of a paper's."""
        name:
            NAME
        input:
            lambda wildcards, name=NAME: results(PROJECT.files(name)),
        localrule: True
        message:
            f"{NAME}: everything is there"
