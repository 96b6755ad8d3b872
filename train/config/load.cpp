#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "core/errors.h"
#include "data/files/text_lines.h"
#include "train/config/check.h"
#include "train/config/config.h"
#include "train/config/parse.h"
#include "train/config/schema.h"
#include "train/config/unused.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

void make_absolute(std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (!path.empty() && !error) path = absolute.lexically_normal().string();
}

// Collects layers (base files first, --set last) and problems, then resolves the layers into a Config.
class ConfigLoader {
 public:
  ConfigLoader(const AttentionCatalogue& catalogue, const ConfigReading& reading)
      : catalogue_(catalogue),
        reading_(reading),
        schema_(config_schema(catalogue)),
        tables_(config_tables()) {}

  Config load(const std::string& path, const std::vector<std::string>& sets) {
    if (!path.empty()) read_file(path, nullptr, {});
    layers_.push_back(parse_set_options(sets, problems_));

    Config config, file_config;
    for (const auto& layer : layers_) {
      if (&layer == &layers_.back()) {
        file_config = config;
        // The config of a checkpoint may come from elsewhere: it must not choose where a command writes.
        if (reading_.use != ConfigUse::training) config.data.feature_cache.clear();
      }
      apply(layer, config);
      follow_length(layer, config);
    }
    apply_attention(config);
    if (!reading_.device.empty()) config.run.device = reading_.device;
    if (config.run.name.empty()) name_after_file(path, config);
    if (problems_.empty()) {
      const ConfigLayer file = path.empty() ? ConfigLayer{} : layers_[layers_.size() - 2];
      check_unused({file, layers_.back(), file_config, config}, reading_, catalogue_, schema_, problems_);
      reset_unused(config, catalogue_, schema_);
      check_config(
          config, catalogue_, [&](const std::string& name) { return position(name, path); }, problems_);
    }
    if (!problems_.empty()) throw ConfigError(report());
    for (std::string* name : {&config.data.path, &config.data.lexicon, &config.data.feature_cache})
      make_absolute(*name);
    return config;
  }

 private:
  void problem(const ConfigPosition& where, const std::string& message) {
    problems_.push_back({where, message});
  }

  void name_after_file(const std::string& path, Config& config) {
    config.run.name = fs::path(path).stem().string();
    if (find_invalid_utf8(config.run.name) != std::string::npos)
      problem({path}, "run.name: the name of the config file is not valid UTF-8; set run.name");
  }
  void read_file(const std::string& path, const ConfigPosition* reached_from,
                 const std::vector<std::string>& chain);
  void apply(const ConfigLayer& layer, Config& config);
  void follow_length(const ConfigLayer& layer, Config& config);
  void apply_attention(Config& config);
  void apply_attention_layer(const ConfigLayer& layer, const std::string& kind, bool keep, Config& config);
  void refuse_commands(const Setting& setting);
  bool is_of_another_kind(const std::string& key) const;
  void unknown_key(const Setting& setting, const std::vector<std::string>& names, const std::string& context);
  void key_without_table(const Setting& setting);
  void unknown_table(const std::string& name, const ConfigPosition& where);
  std::optional<std::string> table_with_key(const std::string& key) const;
  bool is_table(const std::string& name) const {
    return std::count(tables_.begin(), tables_.end(), name) > 0;
  }
  ConfigPosition position(const std::string& name, const std::string& path) const;
  std::string report();

  const AttentionCatalogue& catalogue_;
  ConfigReading reading_;
  std::vector<SchemaKey> schema_;
  std::vector<std::string> tables_;
  std::vector<std::string> files_;  // in the order of reading
  std::vector<ConfigLayer> layers_;
  std::map<std::string, ConfigPosition> placed_;  // where the value in force of a key stands
  std::vector<ConfigProblem> problems_;
};

void ConfigLoader::read_file(const std::string& path, const ConfigPosition* reached_from,
                             const std::vector<std::string>& chain) {
  std::error_code ignored;
  const std::string identity = fs::weakly_canonical(path, ignored).string();
  if (std::find(chain.begin(), chain.end(), identity) != chain.end()) {
    std::string cycle;
    for (const auto& file : chain) cycle += fs::path(file).filename().string() + " -> ";
    problem(*reached_from,
            "extends: files extend each other in a cycle: " + cycle + fs::path(identity).filename().string());
    return;
  }
  files_.push_back(path);
  ConfigLayer layer = parse_config_file(path, reached_from, problems_);

  const auto extends = [](const Setting& s) { return s.table.empty() && s.key == "extends"; };
  auto found = std::find_if(layer.settings.begin(), layer.settings.end(), extends);
  if (found != layer.settings.end()) {
    const ConfigPosition at = found->value_at;
    if (auto base = std::get_if<std::string>(&found->value.data)) {
      auto longer = chain;
      longer.push_back(identity);
      read_file((fs::path(path).parent_path() / *base).lexically_normal().string(), &at, longer);
    } else {
      problem(at, "extends: expected a string, got " + found->value.found);
    }
    std::erase_if(layer.settings, extends);
  }
  layers_.push_back(std::move(layer));
}

void ConfigLoader::apply(const ConfigLayer& layer, Config& config) {
  std::set<std::string> known_unknown;
  for (const auto& table : layer.tables)
    if (!is_table(table.name) && known_unknown.insert(table.name).second)
      unknown_table(table.name, table.where);

  for (const auto& setting : layer.settings) {
    if (setting.table.empty()) {
      key_without_table(setting);
      continue;
    }
    if (!is_table(setting.table)) {
      if (!known_unknown.count(setting.table)) unknown_table(setting.table, setting.key_at);
      continue;
    }
    if (setting.table == "attention") continue;
    std::vector<std::string> names;
    const SchemaKey* key = nullptr;
    for (const auto& candidate : schema_) {
      if (candidate.table != setting.table) continue;
      names.push_back(candidate.spec.name);
      if (candidate.spec.name == setting.key) key = &candidate;
    }
    if (!key) {
      if (setting.name() == "data.allow_commands")
        refuse_commands(setting);
      else
        unknown_key(setting, names, "");
      continue;
    }
    std::string wrong;
    const auto value = typed_value(setting.value, key->spec, {key->whole, key->count}, wrong);
    if (value && key->problem) wrong = key->problem(*value);
    if (!wrong.empty()) {
      problem(setting.value_at, setting.name() + ": " + wrong);
      continue;
    }
    key->set(config, *value);
    placed_[setting.name()] = setting.value_at;
  }
}

// Configs of earlier versions contain this key. A config must never make a command run programs.
void ConfigLoader::refuse_commands(const Setting& setting) {
  const bool by_user = is_set_option(setting.key_at), *value = std::get_if<bool>(&setting.value.data);
  if (!by_user && (reading_.unused != UnusedKeys::refuse || (value && !*value))) return;
  problem(setting.key_at,
          "data.allow_commands: commands of wav.scp are allowed on the command line only: use "
          "--allow-commands");
}

// A layer that sets only one of steps and epochs drops the inherited value of the other key.
void ConfigLoader::follow_length(const ConfigLayer& layer, Config& config) {
  bool sets_steps = false, sets_epochs = false;
  for (const auto& setting : layer.settings) {
    sets_steps |= setting.name() == "train.steps";
    sets_epochs |= setting.name() == "train.epochs";
  }
  if (sets_steps && !sets_epochs && config.train.steps > 0) config.train.epochs = 0;
  if (sets_epochs && !sets_steps && config.train.epochs > 0) config.train.steps = 0;
}

// Every layer's [attention] belongs to the kind in force at that layer: the last one set there or below, else
// the first one set above, else the default. It counts only if that is the final kind.
void ConfigLoader::apply_attention(Config& config) {
  const auto kind_of = [](const ConfigLayer& layer) {
    std::optional<std::string> kind;
    for (const auto& setting : layer.settings) {
      if (setting.name() != "model.attention") continue;
      const auto text = std::get_if<std::string>(&setting.value.data);
      kind = text ? *text : "";  // an ill-typed kind is reported elsewhere
    }
    return kind;
  };
  std::optional<std::string> first;
  for (const auto& layer : layers_)
    if (!first) first = kind_of(layer);
  std::string kind = first.value_or(config.model.attention);

  std::vector<std::string> kinds;
  for (const auto& layer : layers_) {
    kind = kind_of(layer).value_or(kind);
    kinds.push_back(kind);
  }
  const auto known = [&](const std::string& name) {
    return std::count(catalogue_.names.begin(), catalogue_.names.end(), name) > 0;
  };
  if (known(kind)) config.attention = OptionValues(catalogue_.options(kind));
  for (size_t i = 0; i < layers_.size(); ++i)
    if (known(kinds[i])) apply_attention_layer(layers_[i], kinds[i], kinds[i] == kind, config);
}

void ConfigLoader::apply_attention_layer(const ConfigLayer& layer, const std::string& kind, bool keep,
                                         Config& config) {
  const auto specs = catalogue_.options(kind);
  std::vector<std::string> names;
  for (const auto& spec : specs) names.push_back(spec.name);
  for (const auto& setting : layer.settings) {
    if (setting.table != "attention") continue;
    const auto spec =
        std::find_if(specs.begin(), specs.end(), [&](auto& s) { return s.name == setting.key; });
    if (spec == specs.end()) {
      const bool shared = reading_.unused == UnusedKeys::ignore && is_set_option(setting.key_at);
      if (shared && is_of_another_kind(setting.key)) continue;
      if (!uses_attention(config)) continue;  // none of these keys has an effect
      unknown_key(setting, names, " of attention kind " + quoted(kind));
      continue;
    }
    std::string wrong;
    const auto value = typed_value(setting.value, *spec, {}, wrong);
    if (!value)
      problem(setting.value_at, setting.name() + ": " + wrong);
    else if (keep)
      config.attention.set(setting.key, *value);
  }
}

bool ConfigLoader::is_of_another_kind(const std::string& key) const {
  return std::any_of(catalogue_.names.begin(), catalogue_.names.end(), [&](const std::string& kind) {
    const auto specs = catalogue_.options(kind);
    return std::any_of(specs.begin(), specs.end(), [&](const OptionSpec& s) { return s.name == key; });
  });
}

std::optional<std::string> ConfigLoader::table_with_key(const std::string& key) const {
  for (const auto& candidate : schema_)
    if (candidate.spec.name == key) return candidate.table;
  return std::nullopt;
}

void ConfigLoader::unknown_key(const Setting& setting, const std::vector<std::string>& names,
                               const std::string& context) {
  std::string text = "unknown key " + setting.name() + context;
  const std::string near = nearest_name(setting.key, names);
  if (const auto table = table_with_key(setting.key))
    text += "; did you mean " + *table + "." + setting.key + "?";
  else if (!near.empty())
    text += "; did you mean " + setting.table + "." + near + "?";
  problem(setting.key_at, text);
}

void ConfigLoader::key_without_table(const Setting& setting) {
  if (is_table(setting.key)) {
    problem(setting.value_at, setting.key + ": expected a table, got " + setting.value.found);
    return;
  }
  std::vector<std::string> names = {"extends"};
  for (const auto& key : schema_) names.push_back(key.spec.name);
  std::string near = table_with_key(setting.key) ? setting.key : nearest_name(setting.key, names);
  if (const auto table = table_with_key(near)) near = *table + "." + near;
  problem(setting.key_at, "unknown key " + setting.key + " outside of all tables" +
                              (near.empty() ? "" : "; did you mean " + near + "?"));
}

void ConfigLoader::unknown_table(const std::string& name, const ConfigPosition& where) {
  const std::string near = nearest_name(name, tables_);
  problem(where, "unknown table [" + name + "]" + (near.empty() ? "" : "; did you mean [" + near + "]?"));
}

// Of a key that is not set: its table in the main file, else the start of that file.
ConfigPosition ConfigLoader::position(const std::string& name, const std::string& path) const {
  if (const auto found = placed_.find(name); found != placed_.end()) return found->second;
  const std::string table = name.substr(0, name.find('.'));
  for (const auto& layer : layers_)
    for (const auto& candidate : layer.tables)
      if (candidate.name == table && candidate.where.file == path) return candidate.where;
  return path.empty() ? ConfigPosition{"--set " + name} : ConfigPosition{path, 1, 1};
}

std::string ConfigLoader::report() {
  const auto rank = [&](const ConfigProblem& p) {
    const auto file = std::find(files_.begin(), files_.end(), p.where.file);  // --set options come last
    return std::make_tuple(file - files_.begin(), p.where.line, p.where.column);
  };
  std::stable_sort(problems_.begin(), problems_.end(),
                   [&](const ConfigProblem& a, const ConfigProblem& b) { return rank(a) < rank(b); });
  std::string text;
  for (const auto& p : problems_) {
    // "--set data.limit: data.limit: …" would name the key twice.
    const std::string option =
        is_set_option(p.where) ? p.where.file.substr(p.where.file.find(' ') + 1) + ": " : "";
    const bool twice = !option.empty() && p.message.starts_with(option);
    text += concat_text(text.empty() ? "" : "\n", p.where.text(), ": ",
                        p.message.substr(twice ? option.size() : 0));
  }
  return text;
}

}  // namespace

Config load_config(const std::string& path, const std::vector<std::string>& sets,
                   const AttentionCatalogue& catalogue, const ConfigReading& reading) {
  return ConfigLoader(catalogue, reading).load(path, sets);
}

}  // namespace tapeformer
