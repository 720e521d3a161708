# docker build -t hwgen . && docker run --rm hwgen            runs make demo
# docker run --rm hwgen make test                             runs the suite
FROM python:3.12-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev make git \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /hwgen
COPY . .
RUN make .venv/.installed-dev
CMD ["make", "demo"]
