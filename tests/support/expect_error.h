// EXPECT_ERROR(statement, Type, matcher): the statement throws exactly braid::Type, and its message matches.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

#define EXPECT_ERROR(statement, Type, matcher)       \
  try {                                              \
    statement;                                       \
    ADD_FAILURE() << "nothing was thrown";           \
  } catch (const ::braid::Error& error) {            \
    EXPECT_EQ(error_code_name(error.code()), #Type); \
    EXPECT_THAT(error.message(), matcher);           \
  }
