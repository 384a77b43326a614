# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Which wheels tools/setup.sh installs beside torch, from metadata of two generations of torch."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tools/setup"))
import torch_wheels

TORCH_2_11 = [
    "filelock",
    "setuptools<82",
    'cuda-toolkit[cublas,cudart,nvtx]==13.0.2; platform_system == "Linux"',
    'cuda-bindings<14,>=13.0.3; platform_system == "Linux"',
    'nvidia-cudnn-cu13==9.19.0.56; platform_system == "Linux"',
    'nvidia-nccl-cu13==2.28.9; platform_system == "Linux"',
    'triton==3.6.0; platform_system == "Linux"',
    'optree>=0.13.0; extra == "optree"',
]
TORCH_2_8 = [
    'nvidia-cuda-runtime-cu12==12.8.90; platform_system == "Linux"',
    'nvidia-cuda-cupti-cu12==12.8.90; platform_system == "Linux"',
    'nvidia-nccl-cu12==2.27.3; platform_system == "Linux"',
]


class RequirementsTest(unittest.TestCase):
    def test_cpp_needs_two_small_wheels(self):
        self.assertEqual(torch_wheels.requirements("cpp", TORCH_2_11),
                         ["cuda-toolkit[cudart,cupti]==13.0.2"])
        self.assertEqual(torch_wheels.requirements("cpp", TORCH_2_8),
                         ["nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cuda-cupti-cu12==12.8.90"])

    def test_python_leaves_out_what_is_opened_only_on_use(self):
        found = torch_wheels.requirements("python", TORCH_2_11)
        self.assertIn("nvidia-cudnn-cu13==9.19.0.56", found)
        self.assertIn("filelock", found)
        self.assertFalse([line for line in found if line.startswith(("triton", "cuda-bind", "optree"))])
        toolkit = [line for line in found if line.startswith("cuda-toolkit[")]
        self.assertEqual(len(toolkit), 1)
        self.assertIn("cublas", toolkit[0])
        self.assertNotIn("cusolver", toolkit[0])

    def test_cuda_brings_the_compiler_and_nccl_of_the_same_release(self):
        self.assertEqual(torch_wheels.requirements("cuda", TORCH_2_11),
                         ["cuda-toolkit[cccl,crt,cudart,nvcc,nvvm]==13.0.2", "nvidia-nccl-cu13==2.28.9"])


if __name__ == "__main__":
    unittest.main()
