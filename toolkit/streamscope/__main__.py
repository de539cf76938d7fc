"""``python -m streamscope`` is ``streamscope``."""

import sys

from streamscope.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
