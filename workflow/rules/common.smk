# The project, and the input, parameter and resource functions of rules, from fedrec/plan/rule_functions.py.

import os
import sys

from fedrec.cli.snakemake_arguments import targets_of
from fedrec.files.atomic import write_text
from fedrec.plan.fingerprint import code_fingerprint
from fedrec.plan.rule_functions import RuleFunctions

RULES = RuleFunctions.load(
    workflow.overwrite_configfiles,
    workflow.config_settings.config,
    os.environ,
    uses_cache=bool(workflow.enable_cache),
    is_job=not workflow.is_main_process,
    targets=lambda: targets_of(sys.argv[1:]),
)
PROJECT, result, results = RULES.project, RULES.project.result_path, RULES.results
shell.prefix(RULES.shell_prefix())
