"""LocalStack, run by the Python of its own environment: ``python localstack_server.py DIRECTORY``.

Its place for objects is a constant, below ``/tmp`` and shared by all LocalStacks of a machine; here it is ``DIRECTORY``. And it
asks the machine's name server for a name of its maker's; here it goes without.
"""

import sys

from localstack.runtime.main import main  # type: ignore[import-not-found]
from localstack.services.s3 import provider  # type: ignore[import-not-found]
from localstack.utils.aws import aws_stack  # type: ignore[import-not-found]

provider.DEFAULT_S3_TMP_DIR = sys.argv[1]
aws_stack.CACHE_S3_HOSTNAME_DNS_STATUS = False
main()
