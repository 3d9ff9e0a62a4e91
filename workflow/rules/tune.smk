# Searches for settings that papers do not state. Trials are ordinary runs.


rule search:
    """One search: every trial, the chosen settings and the flatness of the optimum (csv, markdown, LaTeX, json)."""
    input:
        RULES.inputs,
    output:
        csv=result("tuning/{target}.csv"),
        md=result("tuning/{target}.md"),
        tex=result("tuning/{target}.tex"),
        json=result("tuning/{target}.json"),
        plan=result("plan/{target}.json"),
    log:
        result("logs/tuning/{target}.log"),
    wildcard_constraints:
        target=PROJECT.pattern("search"),
    # Local: a cluster job would plan again, and find other finished trials.
    localrule: True
    params:
        plan=RULES.plan,
        project=result("plan/project.json"),
    message:
        "search {wildcards.target}"
    shell:
        "printf %s {params.plan:q} > {output.plan:q};"
        " fedrec build {wildcards.target:q} --plan {output.plan:q} --project {params.project:q}"
        " > {log:q} 2>&1"
