"""`python -m services.cache`."""

from services.cache.settings import CacheSettings
from shared.runtime.entry import start

if __name__ == "__main__":
    start("cache", CacheSettings)
