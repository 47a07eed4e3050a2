#include "worker/job/optimizers.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <re2/re2.h>

#include <algorithm>

#include "base/error.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

namespace pb = google::protobuf;

OptimizerKind kind_of(const proto::Optimizer& optimizer) {
  switch (optimizer.kind()) {
    case proto::Optimizer::MOMENTUM:
      return OptimizerKind::Momentum;
    case proto::Optimizer::ADAGRAD:
      return OptimizerKind::Adagrad;
    case proto::Optimizer::ADAM:
    case proto::Optimizer::ADAMW:
      return OptimizerKind::Adam;
    case proto::Optimizer::FTRL:
      return OptimizerKind::Ftrl;
    case proto::Optimizer::RMSPROP:
      return OptimizerKind::RmsProp;
    case proto::Optimizer::ADAFACTOR:
      return OptimizerKind::Adafactor;
    case proto::Optimizer::ADAM_8BIT:
      return OptimizerKind::Adam8Bit;
    default:
      return OptimizerKind::Sgd;
  }
}

/// Adagrad's and Ftrl's begins above 0, the mean of squares of RMSProp with nothing.
float initial_accumulator_of(const proto::Optimizer& from) {
  if (from.kind() == proto::Optimizer::RMSPROP && !from.has_initial_accumulator()) return 0;
  return from.initial_accumulator();
}

OptimizerSpec spec_from(const proto::Optimizer& from) {
  return {.kind = kind_of(from),
          .momentum = from.momentum(),
          .nesterov = from.nesterov(),
          .beta1 = from.beta1(),
          .beta2 = from.beta2(),
          .epsilon = from.kind() == proto::Optimizer::ADAGRAD ? OptimizerSpec().epsilon : from.epsilon(),
          .initial_accumulator = initial_accumulator_of(from),
          .weight_decay = from.weight_decay(),
          .rho = from.rho(),
          .centered = from.centered(),
          .learning_rate_power = from.learning_rate_power(),
          .l2_shrinkage = from.l2_shrinkage(),
          .l1 = from.l1(),
          .l2 = from.l2(),
          .clip_value = from.clip_value(),
          .adagrad_epsilon = from.kind() == proto::Optimizer::ADAGRAD ? from.epsilon() : 0.0F,
          .row_wise = from.row_wise() && from.kind() == proto::Optimizer::ADAGRAD,
          .clip_threshold = from.clip_threshold(),
          .decay_exponent = from.decay_exponent(),
          .least_scale = from.least_scale(),
          .scale_by_weights = from.scale_by_weights()};
}

std::string place_of_group(std::size_t index, const proto::OptimizerGroup& group) {
  return fmt::format("optimizer.group[{}] '{}'", index, group.match());
}

std::string first_names(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

}  // namespace

proto::Optimizer group_optimizer(const proto::Optimizer& optimizer, const proto::OptimizerGroup& group) {
  proto::Job as_job;
  proto::Optimizer& own = *as_job.mutable_optimizer();
  if (group.has_kind()) {
    own.set_kind(group.kind());
    own.set_learning_rate(optimizer.learning_rate());
    own.set_clip_value(optimizer.clip_value());
  } else {
    own = optimizer;
    own.clear_group();
  }
  fill_job_defaults(as_job);
  std::vector<const pb::FieldDescriptor*> said;  // a 0 too
  group.GetReflection()->ListFields(group, &said);
  for (const pb::FieldDescriptor* field : said) {
    const pb::FieldDescriptor* to = own.GetDescriptor()->FindFieldByName(field->name());
    if (!to || field->cpp_type() == pb::FieldDescriptor::CPPTYPE_ENUM) continue;  // match, frozen, kind
    if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_BOOL)
      own.GetReflection()->SetBool(&own, to, group.GetReflection()->GetBool(group, field));
    else
      own.GetReflection()->SetFloat(&own, to, group.GetReflection()->GetFloat(group, field));
  }
  return own;
}

struct Optimizers::Patterns {
  std::vector<std::unique_ptr<RE2>> of_group;
  std::vector<std::string> places;
};

Optimizers::Optimizers(const proto::Job& job) : patterns_(std::make_unique<Patterns>()) {
  const proto::Optimizer& optimizer = job.optimizer();
  specs_.push_back(spec_from(optimizer));
  frozen_.push_back(false);
  for (const proto::OptimizerGroup& group : optimizer.group()) {
    const std::string place = place_of_group(patterns_->places.size(), group);
    auto pattern = std::make_unique<RE2>(group.match(), RE2::Quiet);
    if (!pattern->ok())
      throw InvalidArgument(place + ": match is not a regular expression: " + pattern->error());
    patterns_->of_group.push_back(std::move(pattern));
    patterns_->places.push_back(place);
    const proto::Optimizer own = group_optimizer(optimizer, group);
    OptimizerSpec spec = spec_from(own);
    spec.learning_rate_factor = static_cast<float>(static_cast<double>(own.learning_rate()) /
                                                   static_cast<double>(optimizer.learning_rate()));
    specs_.push_back(spec);
    frozen_.push_back(group.frozen());
  }
}

Optimizers::~Optimizers() = default;
Optimizers::Optimizers(Optimizers&&) noexcept = default;
Optimizers& Optimizers::operator=(Optimizers&&) noexcept = default;

int Optimizers::group_of(const std::string& variable) const {
  for (std::size_t g = 0; g < patterns_->of_group.size(); ++g)
    if (RE2::FullMatch(variable, *patterns_->of_group[g])) return static_cast<int>(g) + 1;
  return 0;
}

void Optimizers::check_groups(const std::vector<std::string>& variables) const {
  std::vector<bool> used(specs_.size(), false);
  for (const std::string& variable : variables) used[static_cast<std::size_t>(group_of(variable))] = true;
  for (std::size_t g = 1; g < used.size(); ++g) {
    if (used[g]) continue;
    const bool taken = std::any_of(variables.begin(), variables.end(), [&](const std::string& variable) {
      return RE2::FullMatch(variable, *patterns_->of_group[g - 1]);
    });
    throw InvalidArgument(patterns_->places[g - 1] +
                          (taken ? ": earlier groups match all of its variables"
                                 : ": matches no trainable variable; there are: " + first_names(variables)));
  }
  if (std::all_of(variables.begin(), variables.end(),
                  [&](const std::string& variable) { return frozen(variable); }))
    throw InvalidArgument("optimizer.group: all trainable variables are frozen");
}

}  // namespace braid::worker
