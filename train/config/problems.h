// Problems of config files and --set options. Internal to the config code.
#pragma once

#include <string>
#include <vector>

#include "train/config/parse.h"
#include "train/config/schema.h"

namespace tapeformer {

// Returns a text with one line per problem. The lines are sorted by file, in the order of `files`, and by
// position in the file. Problems of --set options come last.
std::string format_problems(std::vector<ConfigProblem> problems, const std::vector<std::string>& files);

// The describe_…() functions return error messages. If a known key or table has a name similar to an unknown
// name, the message suggests the known name. Otherwise, the message names a command that lists keys, or all
// tables.

// Returns the error message for an unknown key. `names` contains the known keys of the same table. If the key
// is an option of an attention kind, `attention_kind` is the name of the kind, and otherwise "".
std::string describe_unknown_key(const Setting& setting, const std::vector<std::string>& names,
                                 const std::string& attention_kind, const std::vector<SchemaKey>& schema);
// Returns the error message for a key outside of all tables.
std::string describe_key_without_table(const Setting& setting, const std::vector<SchemaKey>& schema);
std::string describe_unknown_table(const std::string& name);

bool is_config_table(const std::string& name);

}  // namespace tapeformer
