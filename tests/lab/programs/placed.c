/* SPDX-License-Identifier: MIT */
/* placed POLICY COMMAND...: run a command under a memory policy, which all its threads inherit. */
#include "policy.h"

int main(int count, char **arguments)
{
	if (count < 3)
		return 2;
	set_task_policy(parse_policy(arguments[1]));
	execvp(arguments[2], arguments + 2);
	perror(arguments[2]);
	return 1;
}
