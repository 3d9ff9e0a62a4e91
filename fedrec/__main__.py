"""`python -m fedrec`: the same as the `fedrec` command."""

from fedrec.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
