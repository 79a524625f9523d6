"""The options that all of these scripts have."""

import argparse


def parse_args(about):
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--fixed", action="store_true", help="train without the bottleneck")
    parser.add_argument("--seconds", type=float, default=60, help="how long to train (default: 60)")
    return parser.parse_args()
