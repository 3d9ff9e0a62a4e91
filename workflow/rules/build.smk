# Tables, figures and pages, each by its name. Each keeps the plan it was made by: what it shows, and its runs.


localrules:
    table,
    figure,
    page,


rule table:
    """One table (csv, markdown, LaTeX; json for pages)."""
    input:
        inputs_of,
    output:
        csv=report(
            results("tables/{target}.csv"),
            category=chapter_of,
            caption="../report/table.rst",
        ),
        md=results("tables/{target}.md"),
        tex=results("tables/{target}.tex"),
        json=results("tables/{target}.json"),
        plan=results("plan/{target}.json"),
    log:
        results("logs/tables/{target}.log"),
    wildcard_constraints:
        target=PROJECT.pattern("table"),
    priority: lambda wildcards: PROJECT.target(wildcards.target).priority
    params:
        plan=plan_of,
        project=results("plan/project.json"),
    message:
        "table {wildcards.target}"
    shell:
        "printf %s {params.plan:q} > {output.plan:q};"
        " fedrec build {wildcards.target:q} --plan {output.plan:q} --project {params.project:q}"
        " > {log:q} 2>&1"


rule figure:
    """One figure (pdf, png, svg), what it shows (csv) and its caption (txt)."""
    input:
        inputs_of,
    output:
        csv=results("figures/{target}.csv"),
        pdf=results("figures/{target}.pdf"),
        png=report(
            results("figures/{target}.png"),
            category=chapter_of,
            caption="../report/figure.rst",
        ),
        svg=results("figures/{target}.svg"),
        txt=results("figures/{target}.txt"),
        plan=results("plan/{target}.json"),
    log:
        results("logs/figures/{target}.log"),
    wildcard_constraints:
        target=PROJECT.pattern("figure"),
    priority: lambda wildcards: PROJECT.target(wildcards.target).priority
    params:
        plan=plan_of,
        project=results("plan/project.json"),
    message:
        "figure {wildcards.target}"
    shell:
        "printf %s {params.plan:q} > {output.plan:q};"
        " fedrec build {wildcards.target:q} --plan {output.plan:q} --project {params.project:q}"
        " > {log:q} 2>&1"


rule page:
    """One page of all results, which opens offline in any browser, and its finding in words (txt)."""
    input:
        inputs_of,
    output:
        html=report(
            results("report/{target}.html"),
            category="Pages",
            caption="../report/page.rst",
        ),
        txt=results("report/{target}.txt"),
        plan=results("plan/{target}.json"),
    log:
        results("logs/report/{target}.log"),
    wildcard_constraints:
        target=PROJECT.pattern("page"),
    params:
        plan=plan_of,
        project=results("plan/project.json"),
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
