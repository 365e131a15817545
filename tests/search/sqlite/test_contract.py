"""The embedded storage keeps the contract of the storages."""

from tests.search.document_contract import *  # noqa: F403 - as below
from tests.search.limits_contract import *  # noqa: F403 - as below
from tests.search.storage_contract import *  # noqa: F403 - the tests of every storage
