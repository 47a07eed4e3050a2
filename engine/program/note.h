// What a pass has to say about a program: a decision and its reason. Readers choose by severity and pass,
// never by the words of the text.
#pragma once

#include <string>

namespace braid {

enum class Severity {
  Detail,   // shown by reports on a plan
  Info,     // and in a job's log
  Warning,  // and in a job's log, as a warning
};

struct Note {
  Severity severity = Severity::Detail;
  std::string pass;  // as `braid graph passes` names it
  std::string text;  // one line
};

/// "streams: AUTO took COST"; a warning begins with "warning: ".
inline std::string to_string(const Note& note) {
  return (note.severity == Severity::Warning ? "warning: " : "") + note.pass + ": " + note.text;
}

}  // namespace braid
