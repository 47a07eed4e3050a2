// The same as watch/status.h, as values of the JSON library. Only for .cc files of this folder.
#pragma once

#include <nlohmann/json.hpp>

#include "watch/status.h"

namespace braid::watch {

nlohmann::ordered_json status_json(const Status& status);
Status read_status(const nlohmann::ordered_json& json);
nlohmann::ordered_json warning_json(const Warning& warning);
Warning read_warning(const nlohmann::ordered_json& json);

}  // namespace braid::watch
