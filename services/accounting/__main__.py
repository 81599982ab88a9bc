"""`python -m services.accounting`."""

from services.accounting.settings import AccountingSettings
from shared.runtime.entry import start

if __name__ == "__main__":
    start("accounting", AccountingSettings)
