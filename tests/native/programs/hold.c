/* hold PID: stops a process as ptdump does, and holds it until somebody ends us. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "output.h"
#include "stop.h"

int main(int count, char **arguments)
{
	struct process process;
	struct stop stop = { 0 };

	process_open(&process, atoi(arguments[count - 1]));
	stop_process(&stop, &process, 0);
	for (;;)
		pause();
}
