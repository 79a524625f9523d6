"""Run the command line: ``python -m profd``."""

from profd.cli.main import main

if __name__ == "__main__":
    main()
