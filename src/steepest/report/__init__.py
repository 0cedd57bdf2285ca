"""Pictures and pages: charts as plain data, drawn by matplotlib into files or as SVG inside one HTML page."""
