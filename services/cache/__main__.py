"""`python -m services.cache`."""

from services.cache.app import SERVICE, build
from services.cache.settings import CacheSettings
from shared.runtime.service import main

if __name__ == "__main__":
    main(SERVICE, CacheSettings, build)
