# The agent alone, for `--set agent_image=`: jobs' images then need neither Python nor Corral.
# From the repository's root: docker build -t corral-agent:1 -f deploy/kubernetes/agent.Dockerfile .
FROM python:3.11-slim AS made
COPY . /src
RUN pip install --no-cache-dir /src && python -m corral.agent.self_contained /opt/corral-agent

FROM busybox:stable
COPY --from=made /opt/corral-agent /opt/corral-agent
