#include "worker/metrics/early_stopping.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include "base/c_locale.h"
#include "base/error.h"

namespace braid::worker {

bool EarlyStopping::is_better(double value, double than) const {
  return options_.higher_is_better ? value > than : value < than;
}

bool EarlyStopping::add(std::uint64_t step, double value) {
  if (std::isnan(value)) {
    ++waited_;
    return false;
  }
  const double by = options_.higher_is_better ? options_.min_delta : -options_.min_delta;
  if (!reference_ || is_better(value, reference_->value + by)) {
    reference_ = Best{step, value};
    waited_ = 0;
  } else {
    ++waited_;
  }
  if (best_ && !is_better(value, best_->value)) return false;
  best_ = Best{step, value};
  return true;
}

std::string EarlyStopping::reason() const {
  if (options_.target && best_ && !is_better(*options_.target, best_->value))
    return fmt::format("{:.6g} has reached the target of {:.6g}", best_->value, *options_.target);
  if (options_.patience == 0 || waited_ < options_.patience) return {};
  return fmt::format("no improvement in {} evaluation{}", waited_, waited_ == 1 ? "" : "s");
}

std::string EarlyStopping::state() const {
  if (!best_ || !reference_) return fmt::format("waited={}", waited_);
  const InCLocale locale;  // {:a} follows the program's
  return fmt::format("waited={} best={:a} at={} reference={:a} at={}", waited_, best_->value, best_->step,
                     reference_->value, reference_->step);
}

void EarlyStopping::restore(const std::string& state) {
  const auto damaged = [&] {
    return DataLoss("'" + state + "' in the checkpoint is not a record of evaluations");
  };
  std::string text = state;
  std::ranges::replace(text, ',', '.');  // of versions that followed the program's locale
  const char* at = text.c_str();
  const auto pass = [&](std::string_view name) {
    if (!std::string_view(at).starts_with(name)) throw damaged();
    at += name.size();
  };
  const auto whole = [&] {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(at, text.data() + text.size(), value);
    if (error != std::errc()) throw damaged();
    at = end;
    return value;
  };
  const auto best_at = [&](std::string_view name) {
    pass(name);
    char* end = nullptr;
    const double value = strtod_in_c(at, &end);
    if (end == at) throw damaged();
    at = end;
    pass(" at=");
    return Best{whole(), value};
  };
  pass("waited=");
  waited_ = static_cast<unsigned>(whole());
  if (*at == '\0') return;
  best_ = best_at(" best=");
  reference_ = best_at(" reference=");
}

}  // namespace braid::worker
