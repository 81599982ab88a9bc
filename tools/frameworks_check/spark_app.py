"""An application of Spark that has executors until a file exists: `spark-submit spark_app.py FILE`.

Executors on fake nodes run no program, so it gives them no tasks.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
end = Path(sys.argv[1])
while not end.exists():
    time.sleep(0.2)
session.stop()
