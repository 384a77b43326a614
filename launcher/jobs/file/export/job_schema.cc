// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <string>

#include "launcher/jobs/file/job_file.h"

namespace chainmail::launch {
namespace {

// What a schema cannot say (names that must be declared, folders that must exist) the reader
// checks.
constexpr const char* kJobSchema = R"json({
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "Chainmail job file",
  "type": "object",
  "required": ["chainmail", "program"],
  "additionalProperties": false,
  "properties": {
    "$schema": {"type": "string", "description": "For editors; not read"},
    "chainmail": {"const": 1, "description": "The version of this form"},
    "name": {"$ref": "#/$defs/name", "description": "Default: the file's name without its end"},
    "program": {
      "type": "array", "minItems": 1, "items": {"type": "string"},
      "description": "Words, no shell's. $NAME, ${NAME}, ${input.ID} and ${output.ID} are expanded on each rank's host; $$ is a dollar"
    },
    "ranks": {"$ref": "#/$defs/count", "description": "Default: one per slot"},
    "per_node": {"$ref": "#/$defs/count", "description": "Ranks on each host"},
    "hosts": {
      "type": "object", "additionalProperties": false,
      "properties": {
        "from": {"type": "string", "minLength": 1, "description": "As -H takes it: h1:4,h2:4, or a hostfile"},
        "count": {"$ref": "#/$defs/count", "description": "The first so many that answer; default: all"},
        "wait": {"$ref": "#/$defs/duration", "description": "For hosts that do not answer; default 30m"},
        "resize": {
          "type": "array", "minItems": 1, "items": {"type": "string"},
          "description": "A program that is called with the number of hosts that are wanted"
        },
        "idle": {"$ref": "#/$defs/duration", "description": "After the last job, until resize 0"}
      },
      "dependentRequired": {"idle": ["resize"], "resize": ["count"]}
    },
    "directory": {"$ref": "#/$defs/path", "description": "Of the ranks; default: the job file's folder"},
    "environment": {
      "type": "object", "propertyNames": {"$ref": "#/$defs/variable"},
      "additionalProperties": {"type": ["string", "null"]},
      "description": "Patterns as in program; null: the launcher's own value"
    },
    "secrets": {
      "type": "object", "propertyNames": {"$ref": "#/$defs/variable"},
      "additionalProperties": {
        "oneOf": [
          {"type": ["string", "null"]},
          {
            "type": "object", "required": ["file"], "additionalProperties": false,
            "properties": {"file": {"$ref": "#/$defs/path"}}
          }
        ]
      },
      "description": "null: of the launcher's environment, or of --secret"
    },
    "inputs": {
      "type": "object", "propertyNames": {"$ref": "#/$defs/id"},
      "additionalProperties": {"$ref": "#/$defs/path"},
      "description": "Folders that must be on every host"
    },
    "outputs": {
      "type": "object", "propertyNames": {"$ref": "#/$defs/id"},
      "additionalProperties": {
        "oneOf": [
          {"$ref": "#/$defs/path"},
          {
            "type": "object", "required": ["path"], "additionalProperties": false,
            "properties": {"path": {"$ref": "#/$defs/path"}, "suffix": {"type": "string"}}
          }
        ]
      },
      "description": "Folders PATH/jobs/NAME/UUID/SUFFIX, which each job makes for itself"
    },
    "mounts": {
      "type": "object", "propertyNames": {"pattern": "^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$"},
      "additionalProperties": {"type": ["string", "null"]},
      "description": "Links below $AZ_BATCHAI_JOB_MOUNT_ROOT; null: of --mount"
    },
    "prepare": {
      "type": "object", "required": ["command"], "additionalProperties": false,
      "properties": {
        "command": {"type": "string", "minLength": 1, "description": "For sh, once per host and attempt"},
        "timeout": {"$ref": "#/$defs/duration"}
      }
    },
    "container": {
      "type": "object", "required": ["engine", "image"], "additionalProperties": false,
      "properties": {
        "engine": {"enum": ["podman", "docker", "apptainer"]},
        "image": {"type": "string", "pattern": "^[^-\\s]\\S*$"},
        "mounts": {"type": "array", "items": {"type": "string", "pattern": "^[^:]+:/[^:]*(:(ro|rw))?$"}},
        "gpus": {"type": "string", "pattern": "^(|all|[0-9]{1,4}(,[0-9]{1,4})*)$"},
        "shm_size": {"type": "string", "pattern": "^(|[0-9]{1,15}([bB]|[kKmMgG][bB]?)?)$"}
      }
    },
    "limits": {
      "type": "object", "additionalProperties": false,
      "properties": {
        "time": {"$ref": "#/$defs/duration", "description": "Of the whole job, over all attempts"},
        "stall": {"$ref": "#/$defs/duration", "description": "Without a step of any rank"},
        "grace": {"$ref": "#/$defs/duration", "description": "From SIGTERM to SIGKILL"}
      }
    },
    "retry": {
      "type": "object", "additionalProperties": false,
      "properties": {
        "failures": {"$ref": "#/$defs/limit", "description": "After a program that failed; default 0"},
        "losses": {"$ref": "#/$defs/limit", "description": "After hosts that were lost; default 20"},
        "exit_codes": {
          "type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 255},
          "description": "Of the program, that count as losses"
        },
        "wait": {"$ref": "#/$defs/duration", "description": "Before the next attempt; default 10s"}
      }
    },
    "elastic": {
      "type": "object", "required": ["min", "max"], "additionalProperties": false,
      "properties": {"min": {"$ref": "#/$defs/count"}, "max": {"$ref": "#/$defs/count"}}
    },
    "logs": {
      "type": "object", "additionalProperties": false,
      "properties": {
        "path": {"$ref": "#/$defs/path", "description": "stdout.txt is in PATH/jobs/NAME/UUID; default: the job's folder"},
        "tag": {"type": "boolean", "description": "Begin every line with [host/rank]"}
      }
    },
    "options": {
      "type": "object", "additionalProperties": {"oneOf": [{"type": ["string", "number"]}, {"const": true}]},
      "description": "Of the launcher's command line, without dashes; true for one without a value"
    }
  },
  "$defs": {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"},
    "id": {"pattern": "^[A-Za-z0-9_]+$"},
    "variable": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    "path": {"type": "string", "minLength": 1},
    "count": {"type": "integer", "minimum": 1, "maximum": 65536},
    "limit": {"type": "integer", "minimum": 0, "maximum": 65536},
    "duration": {
      "oneOf": [
        {"type": "number", "minimum": 0, "maximum": 31536000},
        {"type": "string", "pattern": "^[0-9]+(\\.[0-9]*)?(ms|s|m|h|d)?$"}
      ]
    }
  }
}
)json";

}  // namespace

std::string job_schema() { return kJobSchema; }

}  // namespace chainmail::launch
