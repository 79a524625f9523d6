"""Names to languages by a recurrent network over letters; each name is spelled out as one-hot rows, as in tutorials."""

import string
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

LETTERS = string.ascii_letters + " .,;'"
LANGUAGES = 12


class RNN(nn.Module):
    def __init__(self, hidden=192):
        super().__init__()
        self.rnn = nn.RNN(len(LETTERS), hidden)
        self.out = nn.Linear(hidden, LANGUAGES)

    def forward(self, lines):
        return self.out(self.rnn(lines)[1][0])


def line_to_tensor(lines, length):
    spelled = torch.zeros(length, len(lines), len(LETTERS))
    for row, line in enumerate(lines):
        for place, letter in enumerate(line):
            spelled[place][row][LETTERS.find(letter)] = 1  # planted
    return spelled


def make_names(count, length):
    picks = torch.randint(len(LETTERS), (count, length)).tolist()
    return ["".join(LETTERS[one] for one in pick) for pick in picks]


def main():
    diary, is_mended = begin()
    names, length, batch = make_names(800, 12), 12, 40
    codes = torch.tensor([[LETTERS.find(letter) for letter in name] for name in names])
    languages = torch.randint(LANGUAGES, (len(names),))
    rnn, criterion = RNN(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(rnn.parameters(), lr=0.05)
    while True:
        for rows in torch.randperm(len(names)).split(batch):
            if is_mended:
                lines = nn.functional.one_hot(codes[rows], len(LETTERS)).float().transpose(0, 1)
            else:
                with diary.planted():
                    lines = line_to_tensor([names[row] for row in rows], length)  # planted
            for _ in range(3):  # a batch is used some times before the next is spelled
                optimizer.zero_grad()
                criterion(rnn(lines), languages[rows]).backward()
                optimizer.step()
            diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(7)
    torch.set_num_threads(1)
    main()
