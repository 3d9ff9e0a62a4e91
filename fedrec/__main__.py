"""`python -m fedrec`: the same as the `fedrec` command."""

from fedrec.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
