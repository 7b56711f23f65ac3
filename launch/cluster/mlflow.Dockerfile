# The image of compose.yaml: MLflow with its driver for PostgreSQL, and what the board needs, as requirements.lock pins them.
FROM python:3.11.14-slim-bookworm
COPY requirements.lock /tmp/
RUN pip install --no-cache-dir --constraint /tmp/requirements.lock mlflow psycopg2-binary argcomplete filelock platformdirs
# A volume takes its owner from the folder that it covers.
RUN useradd --create-home --uid 1000 pcl && install --directory --owner pcl /artifacts
USER pcl
WORKDIR /home/pcl
