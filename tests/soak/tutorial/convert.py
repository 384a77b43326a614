#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Converts one of pytorch/examples' C++ programs as docs/tutorial.md says.

usage: convert.py PROGRAM CONVERTED TO_RUN

CONVERTED is what a user would have; TO_RUN is the same for one epoch, ending with a line on stderr,
"digest <16 hex digits> of rank <r>", for a script to compare.
"""

import pathlib
import re
import sys

INCLUDE = (r"#include <torch/torch.h>\n", r"#include <chainmail/chainmail.h>\n\g<0>")
JOIN = """  auto comm = chainmail::create_communicator();
  if (comm->rank() != 0) std::freopen("/dev/null", "w", stdout);
"""
# Old text (a pattern that must match once), new text.
CONVERSIONS = {
    "mnist": [
        INCLUDE,
        (r"(void train\(\n    size_t epoch,\n)    Net& model,",
         r"\1    chainmail::DistributedModel<std::shared_ptr<Net>>& model,"),
        (r"  Net model;\n  model\.to\(device\);\n",
         JOIN + "  auto net = std::make_shared<Net>();\n  net->to(device);\n"
         "  chainmail::DistributedModel model(net, comm);\n"),
        (r"torch::data::datasets::MNIST\(kDataRoot\)\n",
         "chainmail::scatter_dataset(torch::data::datasets::MNIST(kDataRoot), comm)\n"),
        (r"    test\(model, ", "    if (comm->rank() == 0) test(*net, "),
    ],
    "dcgan": [
        INCLUDE,
        (r"  DCGANGenerator generator\(", JOIN + r"\g<0>"),
        (r"  discriminator->to\(device\);\n",
         r"\g<0>  chainmail::DistributedModel generate(generator, comm);\n"
         "  chainmail::DistributedModel discriminate(discriminator, comm);\n"
         "  torch::manual_seed(1 + comm->rank());\n"),
        (r"auto dataset = torch::data::datasets::MNIST\(kDataFolder\)\n",
         "auto dataset = chainmail::scatter_dataset(torch::data::datasets::MNIST(kDataFolder), comm)\n"),
        (r"discriminator->forward\(real_images\)", "discriminate(real_images)"),
        (r"generator->forward\(noise\)", "generate(noise)"),
        (r"discriminator->forward\(fake_images\.detach\(\)\)", "discriminate(fake_images.detach())"),
        (r"discriminator->forward\(fake_images\)\.", "discriminate(fake_images)."),
        (r"if \(batch_index % kCheckpointEvery == 0\)",
         "if (batch_index % kCheckpointEvery == 0 && comm->rank() == 0)"),
    ],
}
DIGEST = """  std::fprintf(stderr, "digest %016llx of rank %d\\n",
               (unsigned long long)chainmail::digest(WHAT), comm->rank());
}
"""
TO_RUN = {
    "mnist": [(r"kNumberOfEpochs = 10", "kNumberOfEpochs = 1"),
              (r"\}\n\Z", DIGEST.replace("WHAT", "net->parameters()"))],
    "dcgan": [(r"\}\n\Z", "  auto parameters = generator->parameters();\n"
               "  for (auto& one : discriminator->parameters()) parameters.push_back(one);\n"
               + DIGEST.replace("WHAT", "parameters"))],
}


def converted(text, changes):
    for old, new in changes:
        text, count = re.subn(old, lambda match, new=new: match.expand(new)
                              if "\\g<" in new or new.startswith("\\1") else new, text)
        if count != 1:
            sys.exit(f"convert.py: {count} places, not one, have '{old}': another version of the program?")
    return text


def main():
    program, result, to_run = map(pathlib.Path, sys.argv[1:])
    text = converted(program.read_text(), CONVERSIONS[program.stem])
    result.write_text(text)
    to_run.write_text(converted(text, TO_RUN[program.stem]))


if __name__ == "__main__":
    main()
