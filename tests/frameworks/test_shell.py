"""Launch scripts followed without running them: what their words come to, beside what Bash itself makes of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlsim.core.errors import ScenarioError
from rlsim.frameworks.shell.script import Script, read_script

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs Bash, the oracle")


def values(text: str) -> dict[str, str]:
    return read_script(text).variables


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("A=3; X=$(( $A * 3 - 1 ))", "8"),
        ("a=700; b=20; X=$(((a + b) * 2))", "1440"),
        ("X=$[ 7 / 2 ]", "3"),
        ("X=1; let X=X+4", "5"),
        ("((X = 3 > 2 ? 10 : 20))", "10"),
        ("X=$(expr 4 + 5)", "9"),
        ('X=$(echo "2 * 8" | bc)', "16"),
        ("X=$(( 2**5 % 7 ))", "4"),
        ("A=5; X=$(( (A << 3) | 1 ))", "41"),
        ('S=${S:-"/w"}; X=${W:-"${S}/m/Name"}', "/w/m/Name"),
        ("X=${A:-${B:-${C:-deep}}}", "deep"),
        ("A=; X=${A:-empty}${A-set}", "empty"),
        ("A=1; X=${A:+yes}${B:+no}", "yes"),
        ("A=org/Name-7B; X=${A##*/}", "Name-7B"),
        ("A=run.tar.gz; X=${A%.*}-${A%%.*}", "run.tar-run"),
        ("A=a-b-c; X=${A//-/_}${A/-/+}", "a_b_ca+b-c"),
        ("A=Qwen; X=${A,,}${A^^}${#A}", "qwenQWEN4"),
        ("A=abcdef; X=${A:1:3}", "bcd"),
        ("D=0,1,2,3; X=$(echo \"$D\" | tr ',' '\\n' | wc -l)", "4"),
        ("D=0,1,2; IFS=',' read -ra G <<< \"$D\"; X=${#G[@]}", "3"),
        ("A=(1 # one\n 2\n); A+=(3); X=${A[1]}${#A[@]}", "23"),
        ('M=4; if [ "$M" = 4 ] || [ "$M" = 2 ]; then X=many; else X=few; fi', "many"),
        ("M=8; if [[ $M -gt 4 && $M -lt 16 ]]; then X=in; elif true; then X=out; fi", "in"),
        ('P=2; [ "$P" -gt 1 ] && X=$P || X=null', "2"),
        ("D=npu; case $D in gpu|cuda) X=1;; n*) X=2;; *) X=3;; esac", "2"),
        ("D=${D:-$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)}; X=$D", "gpu"),
        ("X=; for i in 1 2 3; do X=$X$i; done", "123"),
        ("X=0; for ((i=0; i<4; i++)); do X=$((X + i)); done", "6"),
        ("i=0; while [ $i -lt 5 ]; do i=$((i + 1)); done; X=$i", "5"),
        ("f() { local a=$1; X=$a-$#; }; f p q", "p-2"),
        ("X=$(basename /models/Qwen3-8B/)", "Qwen3-8B"),
        ("X=$(dirname /a/b/c.sh)", "/a/b"),
        ('X="a \\"b\\" c"\'$d\'', 'a "b" c$d'),
        ("X=$(seq -s , 1 4)", "1,2,3,4"),
        ("N='A'; A=5; X=${!N}", "5"),
        ("X=$(printf '%s-%03d' run 7)", "run-007"),
        ("X=first; [ -f env.sh ] && X=second", "first"),
        ("export A=2 B=3; X=$((A * B))", "6"),
        ('if [ -z "$KEY" ]; then echo set KEY; exit 1; fi; X=on', "on"),
        ('A=${ADDRESS:-}; if [ -z "$A" ]; then echo set ADDRESS; exit 1; fi; X=on', "on"),
        ("if [ $# -lt 3 ]; then echo usage; exit 1; fi; X=on", "on"),
        ("X=$(cat <<EOF\ntext\nEOF\n)", "text"),
    ],
)
def test_a_value_is_what_bash_would_set(script: str, expected: str) -> None:
    assert values(script)["X"] == expected


@needs_bash
@pytest.mark.parametrize("script", ["X=${A:-a\\ b}", 'B="x y"; X=${A:-"$B" z}', "X=a{1..3}b", "A=07; X=$((A + 1))"])
def test_a_value_of_odd_words_is_what_bash_prints(script: str) -> None:
    printed = subprocess.run(["bash", "-c", f'{script}; printf %s "$X"'], capture_output=True, text=True, check=True)
    assert values(script)["X"] == printed.stdout


def launched(text: str) -> Script:
    return read_script(text)


def test_a_switch_before_an_array_does_not_take_its_first_word() -> None:
    script = launched("A=(\n --n 4 # four\n # --n 5\n --m 0.5\n)\npython3 train.py --colocate ${A[@]} --last")
    assert script.flat == {"colocate": True, "n": 4, "m": 0.5, "last": True, "(program)": "train.py"}
    assert script.lines["m"] == 4


@pytest.mark.parametrize(
    "command",
    [
        "ray job submit --address=x --runtime-env-json='{\"a\": 1}' -- python3 train.py --n 4",
        "nohup python train.py --n 4 > log 2>&1 &",
        "CUDA_VISIBLE_DEVICES=0,1 python train.py --n 4 2>&1 | tee log.txt",
        "bash -c 'python train.py --n 4'",
        'srun --nodes=2 bash -c "python train.py --n 4"',
        'eval "python train.py --n 4"',
        'L=(uv run python3); "${L[@]}" train.py --n 4 "$@"',
        'run() { python "$@"; }; run train.py --n 4',
        "vllm serve m --n 9 & python convert_hf.py --n 8 --m 1 --k 2; python train.py --n 4",
    ],
)
def test_the_training_program_is_found_behind_what_starts_it(command: str) -> None:
    script = launched(command)
    assert script.flat["(program)"] == "train.py"
    assert script.flat["n"] == 4


def test_comments_and_blanks_among_continued_lines_do_not_end_the_command() -> None:
    script = launched("python t.py \\\n --n 4 \\\n # --n 5 \\\n --m 6 \\\n # --k 1 \\\n\n")
    assert script.flat == {"n": 4, "m": 6, "(program)": "t.py"}
    assert not script.faults
    spaced = launched("python t.py --n 4 \\  # four\n --m 6 \\ \n --k 1")
    assert spaced.flat == {"n": 4, "m": 6, "k": 1, "(program)": "t.py"}


def test_the_flags_of_a_launcher_stand_apart() -> None:
    script = launched("accelerate launch --num_processes 7 --config_file z.yaml grpo.py --lr -1 --beta=0.5 --x a b")
    assert script.launcher == {"num_processes": 7, "config_file": "z.yaml"}
    assert script.flat == {"lr": -1, "beta": 0.5, "x": ["a", "b"], "(program)": "grpo.py"}


def test_overrides_of_hydra_have_the_types_that_its_parser_gives() -> None:
    script = launched("python -m p.main a.b=1e-6 +c.d=[x,y] ++e.f=null g.h=True '~i.j' k.l='\"s\"' 'm.n=${a.b}' a.o=2")
    expected = {"m.n": "${a.b}", "a.b": 1e-6, "c.d": ["x", "y"], "e.f": None, "g.h": True, "k.l": "s", "a.o": 2}
    assert {key: script.flat[key] for key in expected} == expected
    assert script.flat["(program)"] == "p.main"


def test_what_only_the_environment_knows_is_text_with_its_names() -> None:
    script = launched("python3 -m p model.path=$BASE/x n=$((A + 1)) d=$(hostname)")
    assert script.unresolved == {"model.path": "$BASE/x", "n": "$((A + 1))", "d": "$(hostname)"}
    assert script.unset["model.path"] == ("BASE",)
    assert not script.flat.keys() & script.unresolved.keys()
    inside = launched('A="a.b=$BASE/x c.d=$(date +%Y %m) e.f=2"\npython3 -m p $A')
    assert inside.unresolved == {"a.b": "$BASE/x", "c.d": "$(date +%Y %m)"}
    assert inside.flat["e.f"] == 2


def test_scripts_beside_it_are_read_and_others_are_named(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.sh").write_text("ARGS=(--layers 12)")
    here = 'D="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"'
    text = here + '; source "$D/models/m.sh"; . /elsewhere/n.sh\npython t.py ${ARGS[@]}'
    script = read_script(text, "run.sh", tmp_path)
    assert script.flat["layers"] == 12
    assert script.sourced[1] == "/elsewhere/n.sh"
    assert any("/elsewhere/n.sh is not beside the file" in note for note in script.notes)


def test_files_that_it_writes_are_kept() -> None:
    script = launched("N=3\ncat <<EOF > a.yaml\nn: $N\nEOF\ncat > b.yaml <<'EOF'\nn: $N\nEOF\n")
    assert script.documents == {"a.yaml": "n: 3\n", "b.yaml": "n: $N\n"}


def test_nothing_is_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    script = launched(f"touch {trap}; X=$(touch {trap}); python t.py --x `touch {trap}` --y $((x[$(touch {trap})]))")
    assert not trap.exists()
    assert set(script.unresolved) == {"x", "y"}


@pytest.mark.parametrize(
    "script",
    ["while true; do :; done", "f() { f; f; }; f", "A=x; for i in {1..30}; do A=$A$A; done", "X=$(" * 400, "((" * 400],
)
def test_a_script_without_end_ends(script: str) -> None:
    read_script(script)


NAMES = st.sampled_from(["A", "B", "C"])


@st.composite
def sums(draw: st.DrawFn, depth: int = 3) -> str:
    """Whole-number arithmetic over the three names."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.one_of(NAMES, NAMES.map("${}".format), st.integers(0, 99).map(str)))
    operator = draw(st.sampled_from(["+", "-", "*", "<", "==", "&&", "||", "|", "<<"]))
    left, right = draw(sums(depth=depth - 1)), draw(sums(depth=depth - 1))
    right = "3" if operator == "<<" else right
    return draw(st.sampled_from(["({} {} {})", "{} {} {}", "({}{}{})"])).format(left, operator, right)


@st.composite
def words(draw: st.DrawFn, depth: int = 2) -> str:
    """Words with references, defaults, quotes and arrays."""
    kind = draw(st.sampled_from(["plain", "name", "default", "quoted", "sum", "array", "trim"]))
    name = draw(NAMES)
    if kind == "plain" or depth == 0:
        return draw(st.text("abc/.-", min_size=1, max_size=4))
    inner = draw(words(depth=depth - 1))
    return {
        "name": f"${name}",
        "default": f"${{{draw(st.sampled_from(['A', 'Z']))}{draw(st.sampled_from([':-', '-', ':+', '+']))}{inner}}}",
        "quoted": f'"{inner}"' if '"' not in inner else inner,
        "sum": f"$(( {draw(sums())} ))",
        "array": draw(st.sampled_from(["${L[0]}", "${#L[@]}", "${L[*]}"])),
        "trim": f"${{P{draw(st.sampled_from(['##*/', '#*/', '%.*', '%%.*', '//a/b', ':1:3', '^^']))}}}",
    }[kind]


@needs_bash
@given(first=st.integers(1, 50), texts=st.lists(words(), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_words_are_what_bash_prints(first: int, texts: list[str]) -> None:
    head = f"A={first}; B=7; C=$((A + B)); P=dir/a.name.gz; L=(one two); unset Z\n"
    script = head + "".join(f"X{at}={text}\n" for at, text in enumerate(texts))
    echo = "".join(f'printf "%s\\n" "$X{at}"\n' for at in range(len(texts)))
    printed = subprocess.run(["bash", "-c", script + echo], capture_output=True, text=True, check=True).stdout
    found = read_script(script).variables
    assert "".join(f"{found[f'X{at}']}\n" for at in range(len(texts))) == printed


def test_letters_beyond_ascii_are_kept_and_do_not_reach_the_grammar() -> None:
    script = launched("X='größe 模型'; python t.py --name \"$X\" # é\n")
    assert script.flat["name"] == "größe 模型"
    launched("{\U000e1481\x81")


@given(st.one_of(st.text(max_size=200), st.text("$(){}[]\"'`;|&<>=\\ \n\tabX1+-*#!@", max_size=80)))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read_script(text)
    except ScenarioError:
        return


def test_a_line_that_begins_with_a_flag_continues_the_command_before_it() -> None:
    found = read_script("M=(--size 3)\npython3 train.py --first 1 --last $(( 2 * 2 ))\n${M[@]} --more 5\n")
    assert found.flat == {"first": 1, "last": 4, "size": 3, "more": 5, "(program)": "train.py"}
    assert any("continues the command" in note for note in found.notes)
