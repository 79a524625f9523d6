"""Secrets leave no command line, and ordinary options stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profd.daemon.supervise.secrets import is_secret_name, mask_command

NAMES = ["token", "hf-token", "hf_token", "api-key", "apiKey", "WANDB_API_KEY", "db.password", "passwd", "aws_secret"]
# Long and mixed enough to stand nowhere else in a command by chance.
secrets = st.text(st.sampled_from("abcXYZ0189_.+/=~^"), min_size=10, max_size=40).map(lambda text: f"s3{text}x")
names = st.sampled_from(NAMES)
words = st.lists(st.sampled_from(["python", "train.py", "--lr", "0.1", "-v", "model=resnet"]), max_size=4)
ordinary = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30)


@given(words, names, secrets, words)
def test_value_after_the_option_is_masked(before: list[str], name: str, secret: str, after: list[str]) -> None:
    command = [*before, f"--{name}", secret, *after]
    assert mask_command(command) == (*before, f"--{name}", "***", *after)


@given(words, names, secrets, st.sampled_from(["--", "-", "", "+"]))
def test_value_after_the_sign_is_masked(before: list[str], name: str, secret: str, dashes: str) -> None:
    assert mask_command([*before, f"{dashes}{name}={secret}"]) == (*before, f"{dashes}{name}=***")


@given(names, secrets)
def test_secret_in_the_code_of_a_shell_is_masked(name: str, secret: str) -> None:
    code = f"export {name}={secret}; python train.py --{name} '{secret}' --lr 0.1"
    masked = mask_command(["bash", "-c", code])[2]
    assert secret not in masked
    assert masked.endswith("--lr 0.1")


@given(secrets)
def test_password_in_an_address_is_masked(secret: str) -> None:
    address = f"https://bob:{secret}@host/simple"
    assert mask_command(["pip", address]) == ("pip", "https://bob:***@host/simple")


@given(st.lists(ordinary))
def test_masking_keeps_the_number_of_words_and_changes_nothing_the_second_time(command: list[str]) -> None:
    masked = mask_command(command)
    assert len(masked) == len(command)
    assert mask_command(masked) == masked


@pytest.mark.parametrize(
    ("command", "masked"),
    [
        (["curl", "-H", "Authorization: Bearer abc.def"], ["curl", "-H", "Authorization: ***"]),
        (["curl", "https://host/?token=abc&page=1"], ["curl", "https://host/?token=***&page=1"]),
        (["python", "-c", 'd = {"api_key": "a b"}; f()'], ["python", "-c", 'd = {"api_key": ***; f()']),
        (["python", "-c", "e['HF_TOKEN']='a b'; f()"], ["python", "-c", "e['HF_TOKEN']=***; f()"]),
        (["bash", "-c", "token=password=x y"], ["bash", "-c", "token=*** y"]),
        (["env", "PASSWORD=three short words", "cmd"], ["env", "PASSWORD=***", "cmd"]),
        (["x", "hf_abcdefghijklmnopqrst"], ["x", "***"]),
        (["x", "key:sk-proj-abcdefghijklmnopqrst"], ["x", "key:***"]),
        (["x", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"], ["x", "***"]),
    ],
)
def test_secret_is_known_by_its_place_or_shape(command: list[str], masked: list[str]) -> None:
    assert list(mask_command(command)) == masked


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py", "--tokenizer", "gpt2", "--max-tokens", "100", "--keyboard", "us"],
        ["python", "-m", "app", "--author=ada", "--key-frames", "3", "--compass", "1"],
        ["git", "clone", "ssh://git@host:22/repo", "https://host:8080/path"],
        ["python", "train.py", "--token", "--lr", "0.1"],
        ["bash", "-c", "cd /x && python train.py --lr 0.1 model=resnet"],
    ],
)
def test_ordinary_command_stays_as_it_is(command: list[str]) -> None:
    assert list(mask_command(command)) == command


@pytest.mark.parametrize("name", [*NAMES, "--use-auth", "GITHUB_PAT", "dbPassword", "ssh-key", "mytoken"])
def test_name_of_a_secret_is_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["tokenizer", "max_tokens", "monkey", "key", "author", "bypass", "pattern", "passes"])
def test_ordinary_name_is_known(name: str) -> None:
    assert not is_secret_name(name)
