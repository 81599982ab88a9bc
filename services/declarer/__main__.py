"""`python -m services.declarer`."""

from services.declarer.settings import DeclarerSettings
from shared.runtime.entry import start

if __name__ == "__main__":
    start("declarer", DeclarerSettings)
