# Searches for settings that papers do not state. Their trials are runs like any other.


rule search:
    """One search: every trial, the chosen setting and how flat the optimum is (csv, markdown, LaTeX, json)."""
    input:
        inputs_of,
    output:
        csv=results("tuning/{target}.csv"),
        md=results("tuning/{target}.md"),
        tex=results("tuning/{target}.tex"),
        json=results("tuning/{target}.json"),
        plan=results("plan/{target}.json"),
    log:
        results("logs/tuning/{target}.log"),
    wildcard_constraints:
        target=PROJECT.pattern("search"),
    # A cluster's job would plan anew, and find trials that went on meanwhile.
    localrule: True
    params:
        plan=plan_of,
        project=results("plan/project.json"),
    message:
        "search {wildcards.target}"
    shell:
        "printf %s {params.plan:q} > {output.plan:q};"
        " fedrec build {wildcards.target:q} --plan {output.plan:q} --project {params.project:q}"
        " > {log:q} 2>&1"
