"""Secrets leave no command line, and ordinary options stay as they are."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profd.daemon import secrets as secrets_module
from profd.daemon.secrets import (
    COMMAND_CHARACTERS,
    WORD_CHARACTERS,
    is_secret_name,
    mask_command,
    mask_line,
)

NAMES = [
    "token",
    "hf-token",
    "hf_token",
    "api-key",
    "apiKey",
    "WANDB_API_KEY",
    "db.password",
    "passwd",
    "aws_secret",
]
# Long and mixed enough to stand nowhere else in a command by chance.
secrets = st.text(st.sampled_from("abcXYZ0189_.+/=~^"), min_size=10, max_size=40).map(
    lambda text: f"s3{text}x"
)
names = st.sampled_from(NAMES)
words = st.lists(
    st.sampled_from(["python", "train.py", "--lr", "0.1", "-v", "model=resnet"]), max_size=4
)
ordinary = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30)


@given(words, names, secrets, words)
def test_value_after_the_option_is_masked(
    before: list[str], name: str, secret: str, after: list[str]
) -> None:
    command = [*before, f"--{name}", secret, *after]
    assert mask_command(command) == (*before, f"--{name}", "***", *after)


@given(words, names, secrets, st.sampled_from(["--", "-", "", "+"]))
def test_value_after_the_sign_is_masked(
    before: list[str], name: str, secret: str, dashes: str
) -> None:
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
def test_masking_keeps_the_number_of_words_and_changes_nothing_the_second_time(
    command: list[str],
) -> None:
    masked = mask_command(command)
    assert len(masked) == len(command)
    assert mask_command(masked) == masked


@pytest.mark.parametrize(
    ("command", "masked"),
    [
        (["curl", "-H", "Authorization: Bearer abc.def"], ["curl", "-H", "Authorization: ***"]),
        (["curl", "https://host/?token=abc&page=1"], ["curl", "https://host/?token=***&page=1"]),
        (
            ["python", "-c", 'd = {"api_key": "a b"}; f()'],
            ["python", "-c", 'd = {"api_key": ***; f()'],
        ),
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


SECRET_NAMES = (*NAMES, "--use-auth", "GITHUB_PAT", "dbPassword", "ssh-key", "mytoken")
ORDINARY_NAMES = (
    "tokenizer",
    "max_tokens",
    "monkey",
    "key",
    "author",
    "bypass",
    "pattern",
    "passes",
)


@pytest.mark.parametrize("name", [*SECRET_NAMES, *ORDINARY_NAMES])
def test_name_of_a_secret_is_known(name: str) -> None:
    assert is_secret_name(name) == (name in SECRET_NAMES)


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ('wandb.login(key="0123456789abcdef0123456789abcdef01234567")', 'wandb.login(key="***")'),
        ('os.environ["X_KEY"] = "s3cretvalue42xyz"', 'os.environ["X_KEY"] = "***"'),
        (
            "os.environ.setdefault('MY_KEY', 's3cretvalue42xyz')",
            "os.environ.setdefault('MY_KEY', '***')",
        ),
        ("connect(host, password='a b')", "connect(host, password=***"),
        ("connect(host, password='cut off h", "connect(host, password=***"),
        ("api = Api(f'key=abcdefghij0123456789", "api = Api(f'key=abcdefghij0123456789"),
        ('run = login("AbCdEf0123456789AbCdEf0123456789Zz")', 'run = login("***")'),
        ("ValueError: no user has the token=abcdef", "ValueError: no user has the token=***"),
        ("401 for https://ada:s3cret@host/path", "401 for https://ada:***@host/path"),
    ],
)
def test_secret_in_a_line_of_source_or_output_is_masked(line: str, masked: str) -> None:
    assert mask_line(line) == masked


@pytest.mark.parametrize(
    "line",
    [
        'rows = sorted(rows, key="modified_at")',
        'rows = sorted(rows, key=lambda row: row["column_of_2024"])',
        'model = AutoModel.from_pretrained("distilbert-base-uncased-finetuned-sst-2-english")',
        "tokens = tokenizer(batch['text_of_the_sample'], max_length=128)",
        "self.self_attention_layer_norm_1_2_3 = SelfAttentionLayerNorm12345(x)",
        "loss = F.cross_entropy(logits, target, ignore_index=-100, label_smoothing=0.1)",
        'raise KeyError("/srv/data/ImageNet2012/train/n01440764/n01440764_10026.JPEG")',
    ],
)
def test_ordinary_line_stays_as_it_is(line: str) -> None:
    assert mask_line(line) == line


LONG = 32 << 10
HARD = [
    *(
        "a",
        "-a",
        "_",
        "-",
        ".",
        "0-",
        "token=",
        "token=\\'",
        'token="\\',
        "--token ",
        '--token "x',
        "a)",
        "a   ",
    ),
    *(
        "a://b:",
        "http://h:80/x,",
        "eyJ-",
        "eyJaaaaaaaa.",
        "authorization: \n",
        "bearer ",
        "sk-",
        "a@",
        '{\\"key\\": ',
    ),
]
"""Repeated, each of them has a search that fails begin again and again."""


@pytest.mark.parametrize("unit", HARD)
def test_masking_takes_time_in_proportion_to_the_length(unit: str) -> None:
    short, long = (unit * (length // len(unit)) for length in (LONG // 16, LONG))
    # A search that is quadratic takes 256 times as long.
    assert cpu_s(long) < 64 * cpu_s(short)


def cpu_s(word: str) -> float:
    """Return the least CPU time of a few tries at masking all of a word."""
    tries = []
    for _ in range(3):
        begun_s = time.thread_time()
        secrets_module._mask_word(word, is_code=True)
        tries.append(time.thread_time() - begun_s)
    return min(tries)


def test_long_words_are_cut_and_so_is_a_command_of_many() -> None:
    code = "x" * LONG
    assert mask_command(["python", "-c", code]) == ("python", "-c", f"{code[:WORD_CHARACTERS]}…")
    many = mask_command(["word"] * LONG)
    assert many[-1] == "…"
    assert (
        COMMAND_CHARACTERS
        <= sum(len(word) + 1 for word in many)
        < COMMAND_CHARACTERS + WORD_CHARACTERS
    )


@pytest.mark.parametrize("before", range(WORD_CHARACTERS - 40, WORD_CHARACTERS + 3))
@pytest.mark.parametrize("secret", ["https://bob:{}@host", "password={}", "x='{}'", "sk-{}"])
def test_a_secret_over_the_cut_is_masked_all_the_same(before: int, secret: str) -> None:
    hidden = "s3cret" * 10 if secret != "x='{}'" else "hf_" + "s3cret" * 10
    (shown,) = mask_command(["y" * (before - 1) + " " + secret.format(hidden) + " " * LONG])
    assert "s3" not in shown
