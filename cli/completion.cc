// `braid completion bash|zsh` and `braid man`: what the parser knows of all subcommands, as scripts that
// complete command lines and as manual pages. So neither can say something else than `--help`.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "cli/commands.h"

namespace braid::cli {
namespace {

/// "train", "graph run": what stands between `braid` and the options. Empty for braid itself.
struct Command {
  std::string path;
  const CLI::App* app;
};

std::vector<const CLI::App*> visible_subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); });
}

void collect(const CLI::App& app, const std::string& path, std::vector<Command>& commands) {
  commands.push_back({path, &app});
  for (const CLI::App* each : visible_subcommands(app))
    collect(*each, path.empty() ? each->get_name() : path + " " + each->get_name(), commands);
}

std::vector<Command> commands_of(const CLI::App& app) {
  std::vector<Command> commands;
  collect(app, "", commands);
  return commands;
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options(
      [](const CLI::Option* option) { return !option->get_positional() && !option->get_group().empty(); });
}

/// "--rows", "-h".
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// Of "TEXT:{tsv,tfrecord}" and "cuda|cpu|auto" the words; of all other types none.
std::vector<std::string> choices_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  char between = '|';
  if (const auto open = type.find('{'), close = type.find('}'); open != std::string::npos && close > open) {
    type = type.substr(open + 1, close - open - 1);
    between = ',';
  } else {
    if (const auto colon = type.rfind(':'); colon != std::string::npos) type = type.substr(colon + 1);
    if (type.find('|') == std::string::npos) return {};
  }
  std::vector<std::string> words(1);
  for (const char c : type) {
    if (c == between)
      words.emplace_back();
    else
      words.back().push_back(c);
  }
  const bool plain = std::all_of(words.begin(), words.end(), [](const std::string& word) {
    return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
    });
  });
  return plain ? words : std::vector<std::string>{};
}

/// Up to the first end of a sentence, on one line.
std::string first_sentence(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  for (const char* end : {". ", ": ", "; "})
    if (const auto at = text.find(end); at != std::string::npos) text.resize(at);
  return text;
}

std::string words_of_subcommands(const CLI::App& app) {
  std::string words;
  for (const CLI::App* each : visible_subcommands(app))
    words += (words.empty() ? "" : " ") + each->get_name();
  return words;
}

std::string words_of_options(const CLI::App& app) {
  std::string words;
  for (const CLI::Option* option : options_of(app))
    for (const std::string& name : names_of(*option)) words += (words.empty() ? "" : " ") + name;
  return words;
}

/// Patterns for `case "$command $word"` of everything that goes one command deeper.
std::string deeper_patterns(const std::vector<Command>& commands) {
  std::string patterns;
  for (const Command& command : commands)
    if (!command.path.empty())
      patterns += fmt::format("{}' {}'", patterns.empty() ? "" : " | ", command.path);
  return patterns;
}

/// Which values the option before the cursor takes; the same cases for both shells. `files` and `words` are
/// what the shell does for each.
template <class Words>
std::string value_cases(const std::vector<Command>& commands, const std::string& files, Words words) {
  std::string text;
  for (const Command& command : commands)
    for (const CLI::Option* option : options_of(*command.app)) {
      if (!takes_value(*option)) continue;
      std::string patterns;
      for (const std::string& name : names_of(*option))
        patterns += fmt::format("{}'{}{} {}'", patterns.empty() ? "" : " | ", command.path.empty() ? "" : " ",
                                command.path, name);
      const std::vector<std::string> choices = choices_of(*option);
      text += fmt::format("    {}) {}; return ;;\n", patterns,
                          choices.empty() ? files : words(fmt::format("{}", fmt::join(choices, " "))));
    }
  return text;
}

/// What finds the command on the line: `launch ... -- train` completes like `train`.
constexpr const char* kWalk = R"(    if [[ $word == -- && $command == ' launch' ]]; then
      command=''
      continue
    fi
    case "$command $word" in
)";

std::string bash_script(const CLI::App& app) {
  const std::vector<Command> commands = commands_of(app);
  std::string text =
      "# Completion of braid for bash, made by `braid completion bash`. To use it: source <(braid completion "
      "bash)\n"
      "_braid() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command='' word i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=${COMP_WORDS[i]}\n";
  text += kWalk;
  text +=
      fmt::format("      {}) command=\"$command $word\" ;;\n    esac\n  done\n", deeper_patterns(commands));
  text += "  case \"$command $before\" in\n";
  text += value_cases(commands, "compopt -o default", [](const std::string& words) {
    return fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$current\"))", words);
  });
  text += "  esac\n  local words=''\n  case \"$command\" in\n";
  for (const Command& command : commands) {
    const std::string options = words_of_options(*command.app),
                      subcommands = words_of_subcommands(*command.app);
    text += fmt::format("    '{}{}') if [[ $current == -* ]]; then words='{}'; else words='{}'; fi ;;\n",
                        command.path.empty() ? "" : " ", command.path, options, subcommands);
  }
  return text +
         "  esac\n"
         "  if [[ -n $words ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$current\")); else compopt -o "
         "default; fi\n"
         "}\n"
         "complete -F _braid braid\n";
}

/// For a word 'name:text' of _describe between single quotes.
std::string zsh_entry(const std::string& name, const std::string& text) {
  std::string entry = name + ":";
  for (const char c : text) {
    if (c == '\'')
      entry += "'\\''";
    else if (c == ':' || c == '\\')
      entry += std::string("\\") + c;
    else
      entry.push_back(c);
  }
  return "'" + entry + "'";
}

std::string zsh_script(const CLI::App& app) {
  const std::vector<Command> commands = commands_of(app);
  std::string text =
      "#compdef braid\n"
      "# Completion of braid for zsh, made by `braid completion zsh`. To use it: source <(braid completion "
      "zsh)\n"
      "_braid() {\n"
      "  local command='' word before=${words[CURRENT-1]}\n"
      "  local -a subcommands options\n"
      "  for word in ${words[2,CURRENT-1]}; do\n";
  text += kWalk;
  text +=
      fmt::format("      ({})) command=\"$command $word\" ;;\n    esac\n  done\n", deeper_patterns(commands));
  text += "  case \"$command $before\" in\n";
  text += value_cases(commands, "_files", [](const std::string& words) { return "compadd -- " + words; });
  text += "  esac\n  case \"$command\" in\n";
  for (const Command& command : commands) {
    std::string options, subcommands;
    for (const CLI::Option* option : options_of(*command.app))
      for (const std::string& name : names_of(*option))
        options += " " + zsh_entry(name, first_sentence(option->get_description()));
    for (const CLI::App* each : visible_subcommands(*command.app))
      subcommands += " " + zsh_entry(each->get_name(), first_sentence(each->get_description()));
    text += fmt::format("    '{}{}') options=({} ) subcommands=({} ) ;;\n", command.path.empty() ? "" : " ",
                        command.path, options, subcommands);
  }
  return text +
         "  esac\n"
         "  if [[ $PREFIX == -* ]]; then _describe option options\n"
         "  elif (( $#subcommands )); then _describe command subcommands\n"
         "  else _files; fi\n"
         "}\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _braid \"$@\"; else compdef _braid braid; "
         "fi\n";
}

/// Text of a manual page: no line of it is taken for a command.
std::string roff(const std::string& text) {
  std::string result;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else
      result.push_back(c);
    line_begins = c == '\n';
  }
  return result;
}

/// "--rows", with what it takes: "INT".
std::string heading_of(const CLI::Option& option) {
  std::string names;
  for (const std::string& name : names_of(option)) names += (names.empty() ? "" : ", ") + name;
  if (names.empty()) names = option.get_name(true);
  if (!takes_value(option) || option.get_positional()) return names;
  const std::vector<std::string> choices = choices_of(option);
  std::string type = option.get_type_name();
  if (const auto colon = type.find(':'); colon != std::string::npos) type.resize(colon);
  return names + " " + (choices.empty() ? type : fmt::format("{}", fmt::join(choices, "|")));
}

std::string options_text(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option :
       app.get_options([](const CLI::Option* each) { return !each->get_group().empty(); })) {
    text += fmt::format(".TP\n\\fB{}\\fR\n{}", roff(heading_of(*option)), roff(option->get_description()));
    if (option->get_required()) text += " (required)";
    if (!option->get_default_str().empty())
      text += roff(fmt::format(" (default: {})", option->get_default_str()));
    text += "\n";
  }
  return text;
}

std::string synopsis(const std::string& path, const CLI::App& app) {
  std::string text = ".B braid" + (path.empty() ? "" : " " + roff(path)) + "\n";
  std::string rest = options_of(app).empty() ? "" : "[OPTION]...";
  for (const CLI::Option* option :
       app.get_options([](const CLI::Option* each) { return each->get_positional(); })) {
    const std::string name = option->get_name(true) + (option->get_items_expected_max() > 1 ? "..." : "");
    rest += " " + (option->get_required() ? name : "[" + name + "]");
  }
  if (!visible_subcommands(app).empty()) rest += " SUBCOMMAND ...";
  return text + roff(rest) + "\n";
}

std::string manual_page(const CLI::App& root, const Command& top) {
  const std::string title = top.path.empty() ? "braid" : "braid-" + top.path;
  std::string upper = title;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string text =
      fmt::format(".TH {} 1 \"\" \"braid {}\" \"Braid\"\n.SH NAME\n{} \\- {}\n", upper, BRAID_VERSION,
                  roff(title), roff(first_sentence(top.app->get_description())));
  text += ".SH SYNOPSIS\n" + synopsis(top.path, *top.app);
  text += ".SH DESCRIPTION\n" + roff(top.app->get_description()) + "\n";
  if (top.path.empty()) {
    text += ".SH COMMANDS\n";
    for (const CLI::App* each : visible_subcommands(root))
      text += fmt::format(".TP\n\\fBbraid {}\\fR(1)\n{}\n", roff(each->get_name()),
                          roff(first_sentence(each->get_description())));
  }
  text += ".SH OPTIONS\n" + options_text(*top.app);
  if (!top.path.empty()) {
    std::vector<Command> commands;
    collect(*top.app, top.path, commands);
    for (auto each = std::next(commands.begin()); each != commands.end(); ++each) {
      text += fmt::format(".SH \"BRAID {}\"\n", roff(each->path)) + synopsis(each->path, *each->app);
      text += ".PP\n" + roff(each->app->get_description()) + "\n" + options_text(*each->app);
    }
  }
  if (!root.get_footer().empty()) text += ".SH EXIT STATUS\n" + roff(root.get_footer()) + "\n";
  text += ".SH SEE ALSO\n";
  if (top.path.empty())
    text += ".BR braid\\-train (1),\n/usr/share/doc/braid\n";
  else
    text += ".BR braid (1)\n";
  return text;
}

int write_manual(const CLI::App& app, const std::filesystem::path& directory) {
  make_directories(directory);
  write_file_atomically(directory / "braid.1", manual_page(app, {"", &app}));
  for (const CLI::App* each : visible_subcommands(app))
    write_file_atomically(directory / ("braid-" + each->get_name() + ".1"),
                          manual_page(app, {each->get_name(), each}));
  return kExitSuccess;
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      app.add_subcommand("completion",
                         "Print a script that completes command lines of braid; packages have it installed.\n"
                         "Now and here: source <(braid completion bash)");
  completion->add_option("SHELL", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  completion->callback([shell, &app, &action] {
    action = [shell, &app] {
      fmt::print("{}", *shell == "bash" ? bash_script(app) : zsh_script(app));
      return kExitSuccess;
    };
  });

  auto directory = std::make_shared<std::string>();
  CLI::App* manual =
      app.add_subcommand("man", "Write manual pages of braid and its subcommands into a directory");
  manual->group("");  // for the build
  manual->add_option("--out", *directory, "Directory")->required();
  manual->callback(
      [directory, &app, &action] { action = [directory, &app] { return write_manual(app, *directory); }; });
}

}  // namespace braid::cli
