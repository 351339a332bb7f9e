// Few queries of multi-head latent attention, against a cache of keys whose first elements are the values.
#pragma once

#include "host/plan/plan.hpp"
#include "host/types/fa_types.h"

namespace fa {

// Checks, plans and queues one call. Throws fa::Error.
void mla(const fa_mla_call& call);

// The plan of a call. Throws FA_UNSUPPORTED with a reason if no kernel serves it.
Plan served_latent_plan(const fa_plan_mla_call& call);

}  // namespace fa
