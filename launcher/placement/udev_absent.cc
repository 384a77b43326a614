// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// hwloc asks libudev about disks and network cards, which nobody here wants to know of. Linked into
// the launcher with hwloc's archive, so that hosts to which it is sent need neither library; hwloc
// takes a null handle for "no udev".

extern "C" {

// NOLINTBEGIN(readability-identifier-naming)
void* udev_new() { return nullptr; }
void* udev_unref(void*) { return nullptr; }
void* udev_device_new_from_subsystem_sysname(void*, const char*, const char*) { return nullptr; }
const char* udev_device_get_property_value(void*, const char*) { return nullptr; }
void* udev_device_unref(void*) { return nullptr; }
// NOLINTEND(readability-identifier-naming)
}
